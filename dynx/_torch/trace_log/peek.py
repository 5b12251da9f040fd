"""Evaluate a debugger's expressions on symbolic variables, as far as their Python values are known at compile time.

Reading a dynamic size through torch adds a guard; these functions read its value in the call being compiled without a guard.
"""

from __future__ import annotations

import builtins
from collections.abc import Iterator, Mapping
from functools import partial
from math import prod
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

from dynx._torch.tracing.render import is_tensor, show, show_value
from dynx._torch.tracing.variables import cell_content, example_of, is_kind, is_lazy, items_of, settled, untouched_value
from dynx.errors import NotConstant

_FUNCTIONS: tuple[Any, ...] = (FunctionType, BuiltinFunctionType, MethodType, partial)


class Unknown:
    """A placeholder for a value that exists only at run time: `repr` describes it, any other use raises NotConstant."""

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
    """The metadata of a traced tensor, with its sizes in the call being compiled; reading its data raises NotConstant."""

    _hint = ", only dtype, shape, device and requires_grad"

    def __init__(self, text: str, tensor: Any) -> None:
        super().__init__(text)
        cls: Any = type(tensor)
        self._class = cls.__base__ if cls.__name__ == "FakeTensor" else cls
        self.dtype, self.device, self.requires_grad = tensor.dtype, tensor.device, tensor.requires_grad
        self.shape = tuple(map(_number, tensor.shape))
        self.ndim = len(self.shape)

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        return self._class  # read by `isinstance`

    def __getattr__(self, name: str) -> Any:
        if not hasattr(self._class, name):
            raise AttributeError(f"a {self._class.__name__} has no attribute {name}")
        return super().__getattr__(name)

    def dim(self) -> int:
        """Return the number of dimensions of the tensor."""
        return self.ndim

    def size(self, dim: int | None = None) -> Any:
        """Return the tensor's sizes in the call being compiled, or the size of one dimension."""
        return self.shape if dim is None else self.shape[dim]

    def numel(self) -> int:
        """Return the tensor's number of elements in the call being compiled."""
        return prod(self.shape)

    def __len__(self) -> int:
        return int(self.shape[0])


class Held:
    """A view of a Python object that includes attributes set by traced code, which torch applies after the graph has run."""

    __slots__ = ("_real", "_tx")

    def __init__(self, tx: Any, real: Any) -> None:
        self._tx, self._real = tx, real

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        return type(self._real)

    def __getattr__(self, name: str) -> Any:
        pending = _pending(self._tx, self._real).get(name)
        if pending is None:
            return held(self._tx, getattr(self._real, name))
        if is_kind(pending, "DeletedVariable"):
            raise AttributeError(f"{self!r} has no attribute {name} here: the traced code deleted it")
        return peek(self._tx, pending)

    def __repr__(self) -> str:
        return show_value(self._real)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._real(*args, **kwargs)

    def __len__(self) -> int:
        return len(self._real)

    def __getitem__(self, key: Any) -> Any:
        return held(self._tx, self._real[key])

    def __iter__(self) -> Iterator[Any]:
        return (held(self._tx, item) for item in self._real)

    def __eq__(self, other: object) -> Any:
        return self._real == (other._real if type(other) is Held else other)

    def __hash__(self) -> int:
        return hash(self._real)


class Names(Mapping[str, Any]):
    """The names, besides builtins, that an expression can use: a frame's locals and globals (containers copied), and `type`."""

    def __init__(self, tx: Any, variables: Mapping[str, Any]) -> None:
        self._tx, self._variables = tx, variables

    def __getitem__(self, name: str) -> Any:
        if name in self._variables:
            return peek(self._tx, self._variables[name])
        if name in self._tx.f_globals:
            return held(self._tx, self._tx.f_globals[name])
        if name == "type":
            return _class_of
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return iter({**self._variables, **self._tx.f_globals})

    def __len__(self) -> int:
        return len({**self._variables, **self._tx.f_globals})


def evaluate(tx: Any, variables: Mapping[str, Any], expression: Any) -> Any:
    """Evaluate an expression, as text or compiled, with the names of a traced frame. Raises what the expression raises."""
    return eval(expression, {"__builtins__": builtins}, Names(tx, variables))


def peek(tx: Any, variable: Any) -> Any:
    """Return the Python value of a symbolic variable, the metadata of a tensor, or Unknown; convert items of containers too."""
    variable = settled(variable)
    if is_lazy(variable):
        return held(tx, untouched_value(variable))
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
        values = [peek(tx, item) for item in items]
        return tuple(values) if is_kind(variable, "TupleVariable", "SizeVariable") else values
    if isinstance(items, dict):
        return {peek(tx, getattr(key, "vt", key)): peek(tx, item) for key, item in items.items()}
    real = next((vars(variable)[name] for name in ("value", "fn") if vars(variable).get(name) is not None), None)
    return Unknown(show(tx, variable)) if real is None else held(tx, real)


def held(tx: Any, value: Any) -> Any:
    """Protect a value from mutation by an expression: copy a container, wrap a tensor or object; return other values as is."""
    if is_tensor(value):
        return TensorFacts(show_value(value), value)
    cls = type(value)
    if cls in (list, tuple, set, frozenset):
        return cls(held(tx, item) for item in value)
    if cls is dict:
        return {key: held(tx, item) for key, item in value.items()}
    is_plain = isinstance(value, (type, ModuleType, bool, int, float, complex, str, bytes)) or not hasattr(value, "__dict__")
    return value if is_plain or isinstance(value, _FUNCTIONS) else Held(tx, value)


def _class_of(value: Any) -> Any:
    """Return the class of a value, or of the object behind a view; replaces `type` in expressions."""
    return value.__class__ if type(value) in (Held, TensorFacts) else type(value)


def _pending(tx: Any, real: Any) -> Mapping[str, Any]:
    """Return the attributes that traced code has set on the object `real`, which torch sets only after the graph has run."""
    side_effects = tx.output.side_effects
    variable = side_effects.id_to_variable.get(id(real))
    return side_effects.store_attr_mutations.get(variable, {})


def _number(number: Any) -> Any:
    """Return a number's value in the call being compiled. It is read from `SymNode._hint`: `hint` may compute a hint."""
    node = getattr(number, "node", None)
    if node is None:
        return number
    hint = getattr(node, "_hint", None)
    return Unknown(str(node.expr)) if hint is None else hint
