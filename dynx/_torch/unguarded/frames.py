"""Record the functions and modules that Dynamo traces into their callers: their code, and the hooks of modules."""

from __future__ import annotations

from functools import cache
from types import FunctionType, MethodType
from typing import Any

from dynx._bytecode.safe_read import UNKNOWN, text_of
from dynx._torch.tracing.variables import source_of, stored
from dynx._torch.unguarded.instructions import record_instructions
from dynx._torch.unguarded.places import find, is_code
from dynx._torch.unguarded.probes import Attribute, Function, Hooks
from dynx._torch.unguarded.read import Reads, Referent, reads_of, real_value


def record_frame(tx: Any) -> None:
    """Record what a frame reads that Dynamo begins to trace. Torch: `InstructionTranslatorBase`."""
    record_instructions(tx)
    if getattr(tx, "parent", None) is None:  # the frame that is compiled: torch compiles its code, whatever calls it
        return
    reads, code = reads_of(tx.output), tx.f_code
    called = stored(tx, "funcvar")
    function = _function_of(called)
    if function is not None and function.__code__ is code:
        probe = Function(Referent(function, source_of(called)))
        reads.add("function", id(function), lambda: (text_of(function), probe), None, source_of(called))
    owner = tx.symbolic_locals.get(code.co_varnames[0]) if code.co_argcount else None
    source = source_of(owner) if owner is not None else None
    if source is None or (value := real_value(owner)) is UNKNOWN:
        return
    if isinstance(value, _module_class()):
        reads.add("hooks", id(value), lambda: (f"hooks of {source}", Hooks(Referent(value, source))))
        reads.add("hooks", None, lambda: ("hooks of all modules", Hooks(None)))
        for name in ("forward", "__call__"):
            _add_method(reads, value, source, name)
    elif is_code(find(value, code.co_name).value):
        _add_method(reads, value, source, code.co_name)


def _add_method(reads: Reads, owner: Any, source: str, name: str) -> None:
    reads.add(
        "method",
        (id(owner), name),
        lambda: (f"{source}.{name}", Attribute(Referent(owner, source), name)),
        None,
        f"{source}.{name}",
    )


def _function_of(variable: Any) -> FunctionType | None:
    value = real_value(variable) if variable is not None else UNKNOWN
    if type(value) is MethodType:
        value = value.__func__
    return value if type(value) is FunctionType else None


@cache
def _module_class() -> Any:
    from torch.nn import Module

    return Module
