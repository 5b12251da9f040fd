"""Counts how often a program's own methods of a container run, by phase: while Dynamo traces, in guards, and in compiled code.

Dynamo interprets most of such methods instead of calling them; `sys.setprofile` counts those that Python really runs.
"""

from __future__ import annotations

import contextlib
import sys
from collections import ChainMap, Counter, OrderedDict, UserDict, UserList, defaultdict, deque
from collections.abc import Callable, Iterator, Mapping
from types import CodeType, FrameType
from typing import Any, NamedTuple

import torch

METHODS = {  # name: a line of code that calls it once
    "__getitem__": "held = o[{key}]",
    "__iter__": "held = [item for item in o]",
    "__len__": "held = len(o)",
    "__setitem__": "o[{key}] = 5",
    "append": "o.append(3)",
    "add": "o.add(3)",
}
PHASES = ("tracing", "guards made", "guards checked", "replay")


class Kind(NamedTuple):
    """A class of containers, how to make one, and one of its keys."""

    base: type
    make: Callable[[type], Any]
    key: str


def _mapping(base: type) -> Kind:
    return Kind(base, lambda cls: cls(a=1), "'a'")


def _sequence(base: type) -> Kind:
    return Kind(base, lambda cls: cls([1, 2]), "0")


KINDS: Mapping[str, Kind] = {
    **{base.__name__: _sequence(base) for base in (list, deque, tuple, set, UserList)},
    **{base.__name__: _mapping(base) for base in (dict, OrderedDict, Counter, UserDict)},
    "defaultdict": Kind(defaultdict, lambda cls: cls(list, a=1), "'a'"),
    "ChainMap": Kind(ChainMap, lambda cls: cls({"a": 1}), "'a'"),
}


class Calls(NamedTuple):
    """Calls of all overridden methods in eager code, in the call that compiles by phase, and in a later call by phase."""

    eager: Counter[str]
    first: Mapping[str, Counter[str]]
    later: Mapping[str, Counter[str]]
    outcome: str  # "compiled", "eager" if Dynamo gave up on the function, or the name of the exception that it raised


def methods_of(kind: str) -> tuple[str, ...]:
    """Return the methods that a kind of container has."""
    base = KINDS[kind].base
    return tuple(name for name in METHODS if hasattr(base, name) and not (base is set and name == "__getitem__"))


def overriding(base: type) -> tuple[type, dict[CodeType, str]]:
    """Return a subclass with a method of its own for each in METHODS that the class has, and their code objects."""
    names = methods_of(base.__name__)
    body = "\n".join(f"    def {name}(self, *args):\n        return super().{name}(*args)\n" for name in names)
    scope: dict[str, Any] = {"base": base}
    exec(compile(f"class Mine(base):\n{body}", f"<{base.__name__}>", "exec"), scope)
    return scope["Mine"], {vars(scope["Mine"])[name].__code__: name for name in names}


def count(kind: str, method: str) -> Calls:
    """Call one method of a container of a kind eagerly, and twice compiled."""
    base, make, key = KINDS[kind]
    cls, codes = overriding(base)
    scope: dict[str, Any] = {}
    code = METHODS[method].format(key=key)
    exec(compile(f"def program(o, x):\n    {code}\n    return x + 1\n", f"<program of {kind}>", "exec"), scope)
    program, x = scope["program"], torch.ones(2)
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    compiled = torch.compile(program, backend="eager")
    values = make(cls), make(cls), make(cls)
    outcome = ""
    with counting(codes) as eager:
        program(values[0], x)
    try:
        with counting(codes) as first:
            compiled(values[1], x)
        with counting(codes) as later:
            compiled(values[2], x)
    except Exception as error:  # noqa: BLE001 - whatever torch raises is the outcome
        first, later, outcome = Counter(), Counter(), type(error).__name__
    counters = torch._dynamo.utils.counters
    is_compiled = counters["stats"]["unique_graphs"] and not counters["graph_break"].total()
    torch._dynamo.reset()
    called = Counter({name: number for (_, name), number in eager.items()})
    return Calls(called, by_phase(first), by_phase(later), outcome or ("compiled" if is_compiled else "eager"))


@contextlib.contextmanager
def counting(codes: Mapping[CodeType, str]) -> Iterator[Counter[tuple[str, str]]]:
    """Count `(phase, method)` of each call of one of these code objects on this thread."""
    found: Counter[tuple[str, str]] = Counter()

    def profile(frame: FrameType, event: str, argument: Any) -> None:
        if event == "call" and (name := codes.get(frame.f_code)) is not None:
            found[_phase(frame), name] += 1

    sys.setprofile(profile)
    try:
        yield found
    finally:
        sys.setprofile(None)


def by_phase(found: Counter[tuple[str, str]]) -> dict[str, Counter[str]]:
    """Return the counts of each phase, without phases in which nothing was called."""
    phases = {phase: Counter({name: number for (at, name), number in found.items() if at == phase}) for phase in PHASES}
    return {phase: numbers for phase, numbers in phases.items() if numbers}


def _phase(frame: FrameType) -> str:
    """Return the phase in which a method is called, from the functions that are under way."""
    names = []
    caller = frame.f_back
    while caller is not None:
        names.append((caller.f_code.co_filename.rpartition("/")[2], caller.f_code.co_name))
        caller = caller.f_back
    if any(file == "guards.py" for file, _ in names):
        return "guards made"
    if any(name == "_compile" and file == "convert_frame.py" for file, name in names):
        return "tracing"
    return "replay" if any(name == "program" for _, name in names) else "guards checked"
