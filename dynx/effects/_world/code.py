"""Replace code objects of functions temporarily, so that compiling them leaves the program's cache entries unchanged."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import CodeType, FunctionType


@contextmanager
def own_code(functions: Iterable[FunctionType]) -> Iterator[None]:
    """Replace the code objects of functions by copies, to which torch attaches new cache entries; restore them at the end."""
    originals = {function: function.__code__ for function in functions}
    copies: dict[CodeType, CodeType] = {}
    try:
        for function, code in originals.items():
            function.__code__ = _copied(code, copies)
        yield
    finally:
        for function, code in originals.items():
            function.__code__ = code


def _copied(code: CodeType, copies: dict[CodeType, CodeType]) -> CodeType:
    """Return a copy of a code object, with copies of the code objects of its inner functions."""
    if code not in copies:
        constants = (_copied(each, copies) if isinstance(each, CodeType) else each for each in code.co_consts)
        copies[code] = code.replace(co_consts=tuple(constants))
    return copies[code]
