"""What a symbolic variable is worth as far as it can be said without changing the trace: for conditions and questions.

Reading a size of a dynamic tensor through torch adds guards; this reads the value that the size has in this call.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod
from types import ModuleType
from typing import Any

from dynx._torch.rendering import is_tensor, show, show_value
from dynx._torch.variables import cell_content, example_of, is_kind, is_lazy, items_of, settled, untouched_value
from dynx.errors import NotConstant

_PLAIN = (bool, int, float, complex, str, bytes, list, tuple, dict, set, frozenset)


class Unknown:
    """A value that exists only at run time; its text is all there is."""

    _hint = ""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text

    def _refuse(self, *_: Any) -> Any:
        raise NotConstant(f"{self._text} has no value before run time{self._hint}")

    __bool__ = __iter__ = __getitem__ = __call__ = __int__ = __float__ = __index__ = _refuse
    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = _refuse
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = _refuse
    __matmul__ = __rmatmul__ = __pow__ = __rpow__ = __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = __neg__ = _refuse
    __hash__ = object.__hash__

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self._refuse()


class TensorFacts(Unknown):
    """What is known of a tensor while it is traced; sizes are those of this call."""

    _hint = ", only dtype, shape, device and requires_grad"

    def __init__(self, text: str, tensor: Any) -> None:
        super().__init__(text)
        self.dtype, self.device, self.requires_grad = tensor.dtype, tensor.device, tensor.requires_grad
        self.shape = tuple(map(_number, tensor.shape))
        self.ndim = len(self.shape)

    def dim(self) -> int:
        return self.ndim

    def size(self, dim: int | None = None) -> Any:
        return self.shape if dim is None else self.shape[dim]

    def numel(self) -> int:
        return prod(self.shape)

    def __len__(self) -> int:
        return int(self.shape[0])


class Held:
    """An object from outside the trace, its attributes as the traced code has changed them so far."""

    def __init__(self, tx: Any, real: Any) -> None:
        self._tx, self._real = tx, real

    def __getattr__(self, name: str) -> Any:
        changed = _pending(self._tx, self._real).get(name)
        if changed is None:
            return _held(self._tx, getattr(self._real, name))
        if is_kind(changed, "DeletedVariable"):
            raise AttributeError(f"{self!r} has no attribute {name} here: it was deleted")
        return peek(self._tx, changed)

    def __repr__(self) -> str:
        return show_value(self._real)


class Names(Mapping[str, Any]):
    """The locals of a frame by name, each read when it is asked for."""

    def __init__(self, tx: Any, variables: Mapping[str, Any]) -> None:
        self._tx, self._variables = tx, variables

    def __getitem__(self, name: str) -> Any:
        return peek(self._tx, self._variables[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self._variables)

    def __len__(self) -> int:
        return len(self._variables)


def peek(tx: Any, variable: Any) -> Any:
    """Give a Python value, facts of a tensor, or Unknown; containers hold the same. Nothing of the trace is given away."""
    variable = settled(variable)
    if is_lazy(variable):
        return _held(tx, untouched_value(variable))
    if is_kind(variable, "CellVariable"):
        content = cell_content(tx, variable)
        return Unknown("<empty cell>") if content is None else peek(tx, content)
    if is_kind(variable, "ConstantVariable"):
        return variable.value
    example = example_of(variable)
    if example is not None:
        return TensorFacts(show(tx, variable), example) if is_tensor(example) else _number(example)
    items = items_of(variable)
    if isinstance(items, list):
        found = [peek(tx, each) for each in items]
        return tuple(found) if is_kind(variable, "TupleVariable", "SizeVariable") else found
    if isinstance(items, dict):
        return {_key(tx, key): peek(tx, each) for key, each in items.items()}
    real = next((vars(variable)[name] for name in ("value", "fn") if vars(variable).get(name) is not None), None)
    return Unknown(show(tx, variable)) if real is None else _held(tx, real)


def _held(tx: Any, value: Any) -> Any:
    """Give a Python value of the program, unless the trace may know better."""
    if is_tensor(value):
        return TensorFacts(show_value(value), value)
    is_plain = isinstance(value, (type, ModuleType, *_PLAIN)) or not hasattr(value, "__dict__")
    return value if is_plain or (callable(value) and not hasattr(value, "forward")) else Held(tx, value)


def _pending(tx: Any, real: Any) -> Mapping[str, Any]:
    """Give the attributes that the traced code has set. Torch: `SideEffects`, which knows objects by id."""
    side_effects = tx.output.side_effects
    variable = side_effects.id_to_variable.get(id(real))
    found: Mapping[str, Any] = side_effects.store_attr_mutations.get(variable, {})
    return found


def _number(number: Any) -> Any:
    """Torch: `SymNode._hint`, only read, since `hint` may compute it."""
    node = getattr(number, "node", None)
    if node is None:
        return number
    hint = getattr(node, "_hint", None)
    return Unknown(str(node.expr)) if hint is None else hint


def _key(tx: Any, key: Any) -> Any:
    return peek(tx, getattr(key, "vt", key))
