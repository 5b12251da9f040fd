"""Make Dynamo run a Python function at compile time when traced code calls a marker object.

Dynamo represents the marker by a subclass of `VariableTracker`, which it finds in the table `VariableBuilder._id_dispatch()` by
the marker's id. `substitute_in_graph` adds entries to that table too; nothing is patched.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch._dynamo.source import AttrSource
from torch._dynamo.variables import ConstantVariable, ListVariable, TupleVariable
from torch._dynamo.variables.base import ValueMutationNew, VariableTracker
from torch._dynamo.variables.builder import VariableBuilder

from dynx._torch.hooks import not_in_retraces

# takes the translator and the arguments as symbolic variables, returns the symbolic variable of the result
Call = Callable[[Any, Sequence[Any], Mapping[str, Any]], Any]


def recognise(marker: object, call: Call) -> None:
    """Make Dynamo run `call` whenever traced code calls `marker`, which must live until `forget` or the end of the process."""
    table = VariableBuilder._id_dispatch()
    table[id(marker)] = lambda builder, value: _Marker(value, call, source=builder.source)


def forget(marker: object) -> None:
    """Undo `recognise`: Dynamo traces calls of `marker` like those of any other object."""
    VariableBuilder._id_dispatch().pop(id(marker), None)


def constant(value: Any) -> Any:
    """Return the `VariableTracker` of a literal, such as a number or a string."""
    return ConstantVariable.create(value)


def sequence(kind: type, items: list[Any]) -> Any:
    """Return the `VariableTracker` of a list or tuple (`kind`) with these items, which are symbolic variables."""
    return TupleVariable(items) if kind is tuple else ListVariable(items, mutation_type=ValueMutationNew())


def is_literal(value: Any) -> bool:
    """Return whether Dynamo treats a value as a constant: a number, a string, None, or a container of those."""
    return bool(ConstantVariable.is_literal(value))


def is_symbolic(value: object) -> bool:
    """Return whether a value is a symbolic number: `SymInt`, `SymFloat` or `SymBool`."""
    return isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool))


def pinned(number: Any) -> int | float | bool:
    """Return a symbolic number's value in the call being compiled, and guard on the value; torch raises if it is unbacked."""
    if isinstance(number, torch.SymBool):
        return bool(number)
    return int(number) if isinstance(number, torch.SymInt) else float(number)


def is_variable(value: object) -> bool:
    """Return whether a value is a symbolic variable (`VariableTracker`)."""
    return isinstance(value, VariableTracker)


class _Marker(VariableTracker):
    _nonvar_fields = {"value", "call", *VariableTracker._nonvar_fields}

    def __init__(self, value: Any, call: Call, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.value = value
        self.call = call

    def python_type(self) -> type:
        return type(self.value)

    def as_python_constant(self) -> Any:
        return self.value

    def reconstruct(self, codegen: Any) -> None:
        codegen(self.source)

    def call_function(self, tx: Any, args: Any, kwargs: Any) -> Any:
        not_in_retraces()
        return self.call(tx, args, kwargs)

    def _attribute(self, tx: Any, name: str) -> Any:
        source = self.source and AttrSource(self.source, name)
        return VariableTracker.build(tx, getattr(self.value, name), source=source)

    var_getattr = _attribute  # 2.11 and 2.13
    tp_getattro_impl = _attribute  # 2.15
