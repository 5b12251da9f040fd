"""Find the globals that a function reads."""

from __future__ import annotations

import dis
import inspect
from collections.abc import Iterator, Mapping
from types import CodeType, ModuleType
from typing import Any

_ABSENT = object()


def globals_read(fn: Any) -> Mapping[tuple[str, ...], Any]:
    """Return the values of globals that a function and its nested functions read.

    Includes attributes that are read from global modules and classes. The keys are paths: `("math", "pi")` for `math.pi`.
    """
    builtins = fn.__builtins__
    values: dict[tuple[str, ...], Any] = {}
    for code in codes_in(fn.__code__):
        path: tuple[str, ...] = ()
        value: Any = _ABSENT
        for instruction in dis.get_instructions(code):
            name = instruction.argval
            if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
                path, value = (name,), fn.__globals__.get(name, builtins.get(name, _ABSENT))
            elif instruction.opname in ("LOAD_ATTR", "LOAD_METHOD") and path and isinstance(value, (ModuleType, type)):
                path, value = (*path, name), inspect.getattr_static(value, name, _ABSENT)
            else:
                path = ()
                continue
            if value is not _ABSENT:
                values[path] = value
    return values


def codes_in(code: CodeType) -> Iterator[CodeType]:
    """Yield a code object and, recursively, the code objects nested in it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from codes_in(constant)
