"""Put calls into a function's bytecode, at the beginnings of statements."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import CodeType
from typing import Any

from bytecode import Bytecode, Instr

from dynx._bytecode.statements import Statement, beginnings, can_hold, entry, step_at


def with_call(code: CodeType, name: str, statement: Statement | None) -> tuple[CodeType, int]:
    """Give the code with a call of the global `name`, without arguments, and at how many places it was put.

    It stands where `statement` begins, in nested code too, or at the beginning of the function when that is None. The call's
    value is dropped; line numbers, exception table and stack size stay right. Uses the `bytecode` library; the code is
    returned unchanged when nothing was put in.
    """
    body = Bytecode.from_code(code)
    places = set(_places(body, statement))
    count = len(places)
    out: list[Any] = []
    position = 0
    for item in body:
        if isinstance(item, Instr):
            if position in places:
                out += _call(name, item.location)
            position += 1
            if statement is not None and isinstance(item.arg, CodeType) and can_hold(item.arg, statement):
                inner, found = with_call(item.arg, name, statement)
                if found:
                    item.arg = inner
                    count += found
        out.append(item)
    if not count:
        return code, 0
    body[:] = out
    return body.to_code(), count


def _places(body: Bytecode, statement: Statement | None) -> tuple[int, ...]:
    """Give the indices among the instructions, labels not counted."""
    steps = [step_at(item.name, item.arg, item.location) for item in body if isinstance(item, Instr)]
    if statement is not None:
        return beginnings(steps, statement)
    first = entry(steps)
    return () if first is None else (first,)


def _call(name: str, location: Any) -> list[Instr]:
    make: Callable[..., Instr] = lambda opname, *arg: Instr(opname, *arg, location=location)  # noqa: E731 - one expression
    precall = [make("PRECALL", 0)] if sys.version_info < (3, 12) else []
    return [make("LOAD_GLOBAL", (True, name)), *precall, make("CALL", 0), make("POP_TOP")]
