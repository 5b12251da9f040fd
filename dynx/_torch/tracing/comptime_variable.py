"""The one subclass of `VariableTracker` that dynx needs: an object of ours that Dynamo calls while it traces.

Torch finds it through the table `VariableBuilder._id_dispatch()` of known objects by id, which `substitute_in_graph` extends
in the same way; nothing is patched. Alike in 2.11, 2.13 and 2.15.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch._dynamo.source import AttrSource
from torch._dynamo.variables import ConstantVariable, ListVariable, TupleVariable
from torch._dynamo.variables.base import ValueMutationNew, VariableTracker
from torch._dynamo.variables.builder import VariableBuilder

# gets the translator and the arguments as symbolic variables, gives the symbolic variable of the result
Call = Callable[[Any, Sequence[Any], Mapping[str, Any]], Any]


def recognise(marker: object, call: Call) -> None:
    """Have Dynamo run `call` whenever traced code calls `marker`, which must live as long as the process."""
    table = VariableBuilder._id_dispatch()
    table[id(marker)] = lambda builder, value: _Marker(value, call, source=builder.source)


def forget(marker: object) -> None:
    """Undo `recognise`."""
    VariableBuilder._id_dispatch().pop(id(marker), None)


def constant(value: Any) -> Any:
    """Make the symbolic variable of a literal."""
    return ConstantVariable.create(value)


def sequence(kind: type, items: list[Any]) -> Any:
    """Make the symbolic variable of a list or tuple of symbolic variables."""
    if kind is tuple:
        return TupleVariable(items)
    return ListVariable(items, mutation_type=ValueMutationNew())


def is_literal(value: Any) -> bool:
    """Tell whether a value can stand in traced code as it is: numbers, text, None and containers of them."""
    return bool(ConstantVariable.is_literal(value))


def is_symbolic(value: object) -> bool:
    return isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool))


def pinned(number: Any) -> int | float | bool:
    """Give the value that a symbolic number has in this call, and guard on it. Raises torch's error for an unbacked one."""
    if isinstance(number, torch.SymBool):
        return bool(number)
    return int(number) if isinstance(number, torch.SymInt) else float(number)


def is_variable(value: object) -> bool:
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
        return self.call(tx, args, kwargs)

    def _attribute(self, tx: Any, name: str) -> Any:
        source = self.source and AttrSource(self.source, name)
        return VariableTracker.build(tx, getattr(self.value, name), source=source)

    var_getattr = _attribute  # 2.11 and 2.13
    tp_getattro_impl = _attribute  # 2.15
