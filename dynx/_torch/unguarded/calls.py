"""Record calls of which Dynamo puts the result into compiled code."""

from __future__ import annotations

import inspect
import sys
from abc import ABCMeta
from collections.abc import Callable
from functools import cache
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any

from dynx._bytecode.safe_read import UNKNOWN, members_of
from dynx._torch.tracing.variables import settled, source_of, stored
from dynx._torch.unguarded.constant_results import note_constant
from dynx._torch.unguarded.instructions import note_attribute
from dynx._torch.unguarded.places import find
from dynx._torch.unguarded.probes import Call, Fields, Length, Subclass
from dynx._torch.unguarded.read import Referent, reads_of, real_value


def record_call(tx: Any, function: Any, args: list[Any], result: Any) -> None:
    """Record a call that traced code has made: its function, its arguments and its result, as variables."""
    called = _called(function)
    if called is UNKNOWN or tx.output.should_exit:  # the call broke the graph
        return
    if called in (hasattr, getattr) and len(args) > 1:
        note_attribute(tx, args[0], stored(settled(args[1]), "value"), result, if_absent=True)
    elif called is inspect.signature and args:
        note_attribute(tx, args[0], "__signature__", result, if_absent=True)
    elif called in (isinstance, issubclass) and len(args) == 2:
        _note_subclass(tx, called, args[0], args[1], result)
    elif called is len and args and (source := source_of(args[0]) or "").endswith(".__dict__"):
        reads_of(tx.output).add("attribute", source, lambda: (f"len({source})", Length(Referent.of(args[0]))))
    elif called in _settings():
        name = f"{called.__module__}.{called.__qualname__}()"
        reads_of(tx.output).add("call", name, lambda: (name, Call(called)))
    elif _is_fields(called) and args:
        _note_fields(tx, args[0])
    elif members_of(called).get("_dynamo_marked_constant") and not called.__module__.startswith("torch."):
        owner = stored(settled(function), "obj")
        note_constant(tx, called, owner if owner is not None else args[0] if args else None, result)


def _called(function: Any) -> Any:
    value = real_value(function)
    if value is UNKNOWN and type(variable := settled(function)).__name__.endswith("BuiltinVariable"):
        value = variable.as_python_constant()  # `hasattr` and others have classes of their own
    if type(value) is MethodType:
        value = value.__func__
    return value if type(value) in (FunctionType, BuiltinFunctionType) else UNKNOWN


def _note_subclass(tx: Any, called: Any, owner: Any, wanted: Any, result: Any) -> None:
    cls, base = real_value(owner), real_value(wanted)
    if called is isinstance:
        cls = type(cls) if cls is not UNKNOWN else UNKNOWN
    if not isinstance(cls, type) or not isinstance(base, type) or type(base) is type:
        return
    is_safe = issubclass(type(base), ABCMeta) and all(_is_of_python(base, name) for name in _CHECKS)
    text = f"{called.__name__}({cls.__qualname__}, {base.__qualname__})"
    check = find(type(base), "__instancecheck__").value
    is_called = stored(settled(result), "value") is not (base in cls.__mro__)  # torch 2.13 and older do not call it
    if not is_safe and type(check) is FunctionType and is_called:
        note_constant(tx, check, wanted, result)
    if is_safe:
        reads_of(tx.output).add(
            "isinstance", (id(cls), id(base)), lambda: (text, Subclass(Referent(cls, None), Referent(base, None)))
        )


_CHECKS = ("__instancecheck__", "__subclasscheck__", "__subclasshook__")


def _is_of_python(cls: type, name: str) -> bool:
    """Return whether Python itself defines how instances of a class are recognized."""
    value = find(cls, name).value
    function = value.__func__ if isinstance(value, (staticmethod, classmethod)) else value
    return getattr(function, "__module__", None) in (None, "abc", "_abc", "typing", "collections.abc", "_collections_abc")


@cache
def _settings() -> frozenset[Callable[[], Any]]:
    """Return functions that only return a setting, and may be called at any time."""
    import torch
    from torch import distributed

    named = [sys.getrecursionlimit, torch.get_num_threads, torch.get_num_interop_threads]
    if distributed.is_available():
        named += [distributed.is_initialized, distributed.get_rank, distributed.get_world_size]
    return frozenset(named)


def _is_fields(called: Any) -> bool:
    """Return whether a function is `dataclasses.fields`, or what Dynamo puts in its place."""
    return called.__name__ == "_dataclasses_fields_lambda" or (called.__name__, called.__module__) == ("fields", "dataclasses")


def _note_fields(tx: Any, owner: Any) -> None:
    cls = real_value(owner)
    cls = cls if isinstance(cls, type) else type(cls)
    if find(cls, "__dataclass_fields__").holder != "absent":
        reads_of(tx.output).add(
            "attribute", (id(cls), "fields"), lambda: (f"fields({cls.__qualname__})", Fields(Referent(cls, None)))
        )
