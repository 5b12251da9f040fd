"""Probes with `mode="rewrite"`: put calls into the bytecode of functions, and restore the original bytecode."""

from __future__ import annotations

import builtins
import itertools
import threading
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import CodeType, FunctionType
from typing import Any, NamedTuple

from dynx._bytecode.inject import with_call
from dynx._bytecode.statements import Statement
from dynx._handle import Handle
from dynx._torch.tracing import comptime_variable
from dynx.comptime._target import Target, functions_in
from dynx.errors import ProbeFailed

_numbers = itertools.count()
_lock = threading.RLock()


class _InsertedCall(NamedTuple):
    """A call that one probe inserts into a function."""

    name: str  # of the builtin that is called
    statement: Statement | None  # the call is inserted before it; None: at the beginning of the function


@dataclass
class _RewrittenFunction:
    """The code of one function without any calls and with all of them, and the calls of every probe in order."""

    original: CodeType
    current: CodeType
    calls: list[_InsertedCall]


_rewritten: weakref.WeakKeyDictionary[FunctionType, _RewrittenFunction] = weakref.WeakKeyDictionary()
_code_counts: dict[str, int] = {}  # for each builtin name, the number of living code objects that call it


class BytecodeProbe(Handle):
    """Functions whose code calls `fire(tx)` while it is traced, and does nothing when it runs.

    New code has no entries in torch's cache, so the next call is traced. `remove()` restores the old code object, and with it
    the cache entries that torch has for it; several probes on one function can be removed in any order. The new code calls a
    builtin, which exists as long as that code does: a generator or a closure that was created in the meantime may still run
    it, and torch keeps code that it has traced.
    """

    def __init__(self, target: Target, fire: Callable[[Any], None]) -> None:
        self._name = f"__dynx_probe_{next(_numbers)}"
        self._functions: list[FunctionType] = []

        def call(tx: Any, args: Any, kwargs: Any) -> Any:
            fire(tx)
            return comptime_variable.constant(None)

        marker = _Marker()
        comptime_variable.recognise(marker, call)
        with _lock:
            functions = [target.function] if target.function is not None else functions_in(target.file, target.statement)
            for function in list(functions):
                code, count = with_call(function.__code__, self._name, target.statement)
                if not count:
                    continue
                vars(builtins)[self._name] = marker
                rewritten = _rewritten.setdefault(function, _RewrittenFunction(function.__code__, function.__code__, []))
                rewritten.calls.append(_InsertedCall(self._name, target.statement))
                _install(function, rewritten, code)
                self._functions.append(function)
        if not self._functions:
            comptime_variable.forget(marker)
            raise ProbeFailed(
                f'no loaded function contains {target.place}\n  import the module of that file first, or use mode="hook"'
            )

    def remove(self) -> None:
        """Remove the calls of this probe. A function whose code was replaced by others since is left unchanged."""
        with _lock:
            for function in self._functions:
                rewritten = _rewritten.get(function)
                if rewritten is None or function.__code__ is not rewritten.current:
                    continue
                rewritten.calls = [call for call in rewritten.calls if call.name != self._name]
                if not rewritten.calls:
                    function.__code__ = rewritten.original
                    del _rewritten[function]
                    continue
                code = rewritten.original
                for call in rewritten.calls:
                    code, _ = with_call(code, call.name, call.statement)
                _install(function, rewritten, code)
            self._functions.clear()


def _install(function: FunctionType, rewritten: _RewrittenFunction, code: CodeType) -> None:
    """Replace the code of a function; a builtin is deleted together with the last code object that calls it."""
    for nested in _with_nested(code):
        for call in rewritten.calls:
            if call.name in nested.co_names:
                _code_counts[call.name] = _code_counts.get(call.name, 0) + 1
                weakref.finalize(nested, _release, call.name).atexit = False
    rewritten.current = function.__code__ = code


def _release(name: str) -> None:
    """Count one code object less that calls a builtin; delete the builtin after the last."""
    _code_counts[name] -= 1
    if not _code_counts[name]:
        del _code_counts[name]
        marker = vars(builtins).pop(name, None)
        if marker is not None:
            comptime_variable.forget(marker)


def _with_nested(code: CodeType) -> Iterator[CodeType]:
    """Yield a code object and those of the functions defined in it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _with_nested(constant)


class _Marker:
    """The object that rewritten code calls; the tracer runs the probe in its place."""

    __slots__ = ()

    def __call__(self) -> None:
        pass
