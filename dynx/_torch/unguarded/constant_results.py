"""Record functions of the program that torch calls while it traces, of which the result is a constant in compiled code.

These are functions under `torch.compiler.assume_constant_result`, `__class_getitem__` and `__instancecheck__`. They are not
called again. A change of what they read is noticed: of globals, closures and attributes that are constants or containers of
constants.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import FunctionType
from typing import Any

from dynx._bytecode.cells import is_filled
from dynx._bytecode.safe_read import UNKNOWN, is_plain, shortened, text_of
from dynx._torch.tracing.variables import is_kind, settled, source_of, stored
from dynx._torch.unguarded.places import find
from dynx._torch.unguarded.read import Probe, Referent, Scope, reads_of, real_value


def note_constant(tx: Any, function: FunctionType, owner: Any, result: Any) -> None:
    """Record a function that torch called while it traced, and what it reads; `owner` is the variable of its first argument."""
    variable = settled(result)
    value = stored(variable, "value") if is_kind(variable, "ConstantVariable") else real_value(result)
    of_owner = Referent.of(owner) if owner is not None and source_of(owner) is not None else None
    text = f"{text_of(function)}(), {text_of(value)} in the trace, which reads"
    reads_of(tx.output).add("constant result", id(function), lambda: (text, ConstantResult(Referent(function, None), of_owner)))


@dataclass(frozen=True, slots=True, eq=False)
class ConstantResult(Probe):
    """What a function reads whose result the program declared to be constant: globals, closure, attributes of its instance."""

    function: Referent
    owner: Referent | None

    def _values(self, scope: Scope | None) -> dict[str, str]:
        function = self.function.get(None)
        if type(function) is not FunctionType:
            return {}
        code = function.__code__
        cells = zip(code.co_freevars, function.__closure__ or (), strict=False)
        values = {name: cell.cell_contents for name, cell in cells if is_filled(cell)}
        values |= {name: function.__globals__[name] for name in code.co_names if name in function.__globals__}
        owner = self.owner.get(scope) if self.owner is not None else UNKNOWN
        if owner is not UNKNOWN:
            found = {f"{code.co_varnames[0]}.{name}": find(owner, name) for name in code.co_names}
            values |= {name: place.value for name, place in found.items() if place.holder != "absent"}
        texts = {name: _contents(value) for name, value in values.items()}
        return {name: text for name, text in texts.items() if text is not None}

    def key(self, scope: Scope | None) -> object:
        return tuple(self._values(scope).items())

    def text(self, scope: Scope | None) -> str:
        return ", ".join(f"{name} = {shortened(text)}" for name, text in self._values(scope).items())


def _contents(value: Any) -> str | None:
    """Return as text a constant or a container of constants; None for anything else."""
    if type(value) is dict:
        return repr(value) if is_plain([*value, *value.values()]) else None
    return repr(value) if is_plain(value) else None
