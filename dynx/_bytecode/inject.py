"""Inject calls into the bytecode of a function, at the beginning of statements."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import CodeType
from typing import Any

from bytecode import Bytecode, Instr
from bytecode.instr import InstrLocation

from dynx._bytecode.statements import Statement, beginnings, body_start, can_hold, step_at


def with_call(code: CodeType, name: str, statement: Statement | None) -> tuple[CodeType, int]:
    """Inject a call of the global `name`, without arguments, at the beginning of a statement.

    If `statement` is None, the call is injected at the beginning of the function. A statement is also searched in nested code
    objects. The result of the call is discarded. Line numbers, exception table and stack size stay correct (the `bytecode`
    library computes them). Returns the new code object and the number of injected calls: `code` itself and 0 if there are none.
    """
    body = Bytecode.from_code(code)
    targets = set(_call_indices(body, statement))
    count = len(targets)
    items: list[Any] = []  # instructions, labels, and the other items of a `Bytecode`
    index = 0
    for item in body:
        if isinstance(item, Instr):
            if index in targets:
                items += _call(name, item.location)
            index += 1
            if statement is not None and isinstance(item.arg, CodeType) and can_hold(item.arg, statement):
                nested, nested_count = with_call(item.arg, name, statement)
                if nested_count:
                    item.arg = nested
                    count += nested_count
        items.append(item)
    if not count:
        return code, 0
    body[:] = items
    return body.to_code(), count


def _call_indices(body: Bytecode, statement: Statement | None) -> tuple[int, ...]:
    """Return the indices of the instructions before which `with_call` injects its call; labels in `body` are not counted.

    The call goes before each instruction that begins `statement`; if `statement` is None, to the beginning of the function.
    """
    steps = [step_at(item.name, item.arg, item.location) for item in body if isinstance(item, Instr)]
    if statement is not None:
        return beginnings(steps, statement)
    first = body_start(steps)
    return () if first is None else (first,)


def _call(name: str, location: InstrLocation | None) -> list[Instr]:
    create: Callable[..., Instr] = lambda opname, *arg: Instr(opname, *arg, location=location)  # noqa: E731 - one expression
    precall = [create("PRECALL", 0)] if sys.version_info < (3, 12) else []
    return [create("LOAD_GLOBAL", (True, name)), *precall, create("CALL", 0), create("POP_TOP")]
