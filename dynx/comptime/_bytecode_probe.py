"""Functions with calls to probes in their bytecode, and the way back."""

from __future__ import annotations

import builtins
import itertools
import threading
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import CodeType, FunctionType
from typing import Any

from dynx._bytecode.inject import with_call
from dynx._bytecode.statements import Statement
from dynx._torch.tracing import comptime_variable
from dynx.comptime._target import Target, functions_in
from dynx.errors import ProbeFailed

_numbers = itertools.count()
_lock = threading.RLock()


@dataclass
class _Layers:
    """The calls in one function, and its code without and with them."""

    original: CodeType
    current: CodeType
    calls: list[tuple[str, Statement | None]]


_layers: weakref.WeakKeyDictionary[FunctionType, _Layers] = weakref.WeakKeyDictionary()
_users: dict[str, int] = {}  # how many living code objects call a name


class Rewritten:
    """Functions whose code calls `fire(tx)` while it is traced and nothing when it runs.

    New code has no compiled code in torch's cache, so the next call is traced. On `restore()` the old code object comes back,
    and with it what torch had compiled for it, in whichever order several are taken away. The name that the new code calls is
    a builtin, for as long as that code lives: a generator or a closure made meanwhile may still run it, and torch remembers
    code that it has traced.
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
                layers = _layers.setdefault(function, _Layers(function.__code__, function.__code__, []))
                layers.calls.append((self._name, target.statement))
                _install(function, layers, code)
                self._functions.append(function)
        if not self._functions:
            comptime_variable.forget(marker)
            raise ProbeFailed(f'no loaded function holds {target.place}\n  import its module first, or use mode="hook"')

    def restore(self) -> None:
        """Take the calls away; code that somebody else has put in since stays."""
        with _lock:
            for function in self._functions:
                layers = _layers.get(function)
                if layers is None or function.__code__ is not layers.current:
                    continue
                layers.calls = [each for each in layers.calls if each[0] != self._name]
                if not layers.calls:
                    function.__code__ = layers.original
                    del _layers[function]
                    continue
                code = layers.original
                for name, statement in layers.calls:
                    code, _ = with_call(code, name, statement)
                _install(function, layers, code)
            self._functions.clear()


def _install(function: FunctionType, layers: _Layers, code: CodeType) -> None:
    """Give a function new code; the names that only such code calls go with the last of it."""
    for each in _with_nested(code):
        for name, _ in layers.calls:
            if name in each.co_names:
                _users[name] = _users.get(name, 0) + 1
                weakref.finalize(each, _one_less, name).atexit = False
    layers.current = function.__code__ = code


def _one_less(name: str) -> None:
    _users[name] -= 1
    if not _users[name]:
        del _users[name]
        marker = vars(builtins).pop(name, None)
        if marker is not None:
            comptime_variable.forget(marker)


def _with_nested(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _with_nested(constant)


class _Marker:
    """What the rewritten code calls; the tracer sees a probe in it."""

    __slots__ = ()

    def __call__(self) -> None:
        pass
