"""Implement `probe(mode="rewrite")`: insert calls into the bytecode of functions, and restore the original bytecode."""

from __future__ import annotations

import builtins
import itertools
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from types import CodeType, FunctionType
from typing import Any

from dynx._bytecode.globals_read import codes_in
from dynx._bytecode.inject import with_call
from dynx._bytecode.statements import Statement
from dynx._handle import Handle
from dynx._torch.tracing import comptime_variable
from dynx.comptime._target import Target, functions_in
from dynx.errors import ProbeFailed

_numbers = itertools.count()
_lock = threading.RLock()


@dataclass
class _RewrittenFunction:
    """The original and the rewritten code object of a function, and the probe calls inserted into it, oldest first."""

    original: CodeType
    current: CodeType
    calls: dict[str, Statement | None]  # by name of a builtin: the statement before which it is called; None: the beginning


_rewritten: weakref.WeakKeyDictionary[FunctionType, _RewrittenFunction] = weakref.WeakKeyDictionary()
_code_counts: dict[str, int] = {}  # by name of a probe's builtin: the number of living code objects that call it


class BytecodeProbe(Handle):
    """A probe that inserts a call into functions. When Dynamo traces it, `fire(tx)` runs; in eager code the call does nothing.

    A rewritten function has a new code object without cache entries, so its next call is traced. `remove()` restores the
    original code object together with its cache entries; several probes on one function can be removed in any order.

    The inserted call finds its function in `builtins`. The function stays there until the last code object that calls it is
    freed, because a generator or closure that was created before `remove()` may run such a code object later.
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
                rewritten = _rewritten.setdefault(function, _RewrittenFunction(function.__code__, function.__code__, {}))
                rewritten.calls[self._name] = target.statement
                _install(function, rewritten, code)
                self._functions.append(function)
        if not self._functions:
            comptime_variable.forget(marker)
            raise ProbeFailed(
                f'no loaded function contains {target.place}\n  import the module of that file first, or use mode="hook"'
            )

    def remove(self) -> None:
        """Remove this probe's calls from its functions; skip functions whose `__code__` is not the one that dynx set."""
        with _lock:
            for function in self._functions:
                rewritten = _rewritten.get(function)
                if rewritten is None or function.__code__ is not rewritten.current:
                    continue
                rewritten.calls.pop(self._name, None)
                if not rewritten.calls:
                    function.__code__ = rewritten.original
                    del _rewritten[function]
                    continue
                code = rewritten.original
                for name, statement in rewritten.calls.items():
                    code, _ = with_call(code, name, statement)
                _install(function, rewritten, code)
            self._functions.clear()


def _install(function: FunctionType, rewritten: _RewrittenFunction, code: CodeType) -> None:
    """Assign rewritten code to a function; its probes stay in `builtins` until all code objects that call them are freed."""
    for nested in codes_in(code):
        for name in rewritten.calls.keys() & nested.co_names:
            _code_counts[name] = _code_counts.get(name, 0) + 1
            weakref.finalize(nested, _release, name).atexit = False
    rewritten.current = function.__code__ = code


def _release(name: str) -> None:
    """Note that a code object that calls a probe was freed; after the last one, delete the probe from `builtins`."""
    _code_counts[name] -= 1
    if not _code_counts[name]:
        del _code_counts[name]
        marker = vars(builtins).pop(name, None)
        if marker is not None:
            comptime_variable.forget(marker)


class _Marker:
    """The object in `builtins` that rewritten bytecode calls. The call does nothing, but runs the probe if Dynamo traces it."""

    __slots__ = ()

    def __call__(self) -> None:
        pass
