"""Describe all objects that a call may change, without running the user's code.

Each object is described by a `Fact` (class and value) and stored by path: the expression that leads to the object, such as
`args[0].weight`. Two runs that did the same have equal facts.
"""

from __future__ import annotations

import re
from collections import OrderedDict, defaultdict, deque
from collections.abc import Iterable, Mapping
from logging import Logger
from types import BuiltinFunctionType, FunctionType, NoneType
from typing import Any, Literal, NamedTuple

import torch
from torch.nn.parameter import is_lazy

from dynx._bytecode.cells import is_filled
from dynx._bytecode.safe_read import text_of
from dynx.effects._world.layout import (
    CONTAINERS,
    NUMBERS_AND_TEXT,
    OF_COMPILATION,
    attributes_of,
    built_in_base,
    is_constant,
    is_of_torch,
    slots_of,
)
from dynx.effects._world.parts import items_of_wrapper

_MODULE_DICTS = ("_parameters", "_buffers", "_modules")
_OF_HOOKS = re.compile(r"_\w*hooks")  # dicts of hooks, whose keys count all hooks of the process
_LARGEST_NUMBER = 16  # bytes: complex128
_MAX_SHOWN = 6  # items of a container
_COMPARED_BY_VALUE = (bool, int, float, complex, str, bytes, NoneType)  # other constants are compared as text
# for optimizers on CUDA, Dynamo sets this option in the parameter groups, and moves these tensors of the state to the GPU
_SET_BY_DYNAMO, _MOVED_BY_DYNAMO = "capturable", "step"


class Tolerance(NamedTuple):
    """Tolerances for numbers. If both are None, those of `torch.testing.assert_close` apply; if only one is None, it is 0."""

    rtol: float | None = None
    atol: float | None = None


class Fact(NamedTuple):
    """What is compared for one path: the object's class and value, or the earlier path that has the same object or memory."""

    cls: str
    value: Any  # a number or text; the keys or the length of a container; a tensor; another path
    kind: Literal["value", "items", "tensor", "same", "memory"]  # "same", "memory": as at another path
    text: str  # for the user


Facts = dict[str, Fact]


class Description:
    """The facts (class and value) of all objects that are reachable from `roots`, and the tensors among them.

    `roots` are objects by path. Closures, defaults and attributes of `functions` are roots, too: they are not described twice.
    """

    def __init__(self, roots: Mapping[str, Any], functions: Iterable[FunctionType] = ()) -> None:
        self._functions = {id(function) for function in functions}
        self.facts: Facts = {}
        self.leaves: dict[str, torch.Tensor] = {}
        self.values: dict[str, torch.Tensor] = {}  # tensors that need no gradient, such as buffers
        self.computed: dict[str, torch.Tensor] = {}  # tensors that have a `grad_fn`
        self._seen: dict[int, tuple[str, Any]] = {}
        self._groups: dict[int, Any] = {}  # the parameter groups of optimizers, by id
        self._steps: dict[int, Any] = {}  # the tensors that count the steps of optimizers, by id
        self._memory: dict[int, str] = {}
        for path, value in roots.items():
            self._describe(path, value)

    def _describe(self, path: str, value: Any) -> None:
        cls = _name_of(type(value))
        if issubclass(type(value), torch.Tensor) and id(value) not in self._seen:
            self._seen[id(value)] = path, value
            self._describe_tensor(path, value)
        elif is_constant(value) or type(value) is BuiltinFunctionType:
            text = text_of(value)
            self.facts[path] = Fact(cls, value if type(value) in _COMPARED_BY_VALUE else text, "value", text)
        elif id(value) in self._seen:
            other = self._seen[id(value)][0]
            self.facts[path] = Fact(cls, other, "same", f"the same object as {other}")
        else:
            self._seen[id(value)] = path, value
            self._describe_object(path, value)

    def _describe_tensor(self, path: str, tensor: torch.Tensor) -> None:
        if is_lazy(tensor):
            self.facts[path] = Fact(_name_of(type(tensor)), "", "value", "a parameter without a shape")
            return
        value = tensor.detach().cpu() if id(tensor) in self._steps else tensor.detach()
        self.facts[path] = Fact(_name_of(type(tensor)), value, "tensor", shown(tensor))
        self.facts[f"{path}.requires_grad"] = Fact("bool", tensor.requires_grad, "value", str(tensor.requires_grad))
        if not tensor.requires_grad:
            self.values[path] = tensor
        elif tensor.is_leaf:
            self.leaves[path] = tensor
        else:
            self.computed[path] = tensor
        if (memory := _memory_of(tensor)) is not None:
            owner = self._memory.setdefault(memory, path)
            if owner != path:
                self.facts[f"{path} shares memory"] = Fact("", owner, "memory", f"shares memory with {owner}")
        if tensor.is_leaf and tensor.grad is not None:
            self._describe(f"{path}.grad", tensor.grad)
        self._describe_attributes(path, tensor)

    def _describe_object(self, path: str, value: Any) -> None:
        cls = type(value)
        base = built_in_base(cls)
        if issubclass(cls, Logger) or is_of_torch(value):  # the attributes of a logger are roots of their own
            self.facts[path] = Fact(_name_of(cls), "", "value", _name_of(cls))
            return
        if cls is FunctionType:
            self.facts[path] = Fact("function", (value.__qualname__, value.__code__.co_code), "value", value.__qualname__)
            if id(value) in self._functions:
                return
            for name, cell in zip(value.__code__.co_freevars, value.__closure__ or (), strict=True):
                if is_filled(cell):
                    self._describe(f"{path}.closure.{name}", cell.cell_contents)
            for index, default in enumerate(value.__defaults__ or ()):
                self._describe(f"{path}.__defaults__[{index}]", default)
            for name, default in (value.__kwdefaults__ or {}).items():
                self._describe(f"{path}.__kwdefaults__[{name!r}]", default)
        elif (items := items_of_wrapper(value)) is not None:
            self.facts[path] = Fact(_name_of(cls), "", "value", _name_of(cls))
            for label, item in items:
                self._describe(path + label, item)
        elif cls.__module__ == "numpy" and hasattr(value, "dtype"):
            self._describe_array(path, value)
        elif base in CONTAINERS:
            self._describe_container(path, value, base)
        elif base in NUMBERS_AND_TEXT:
            plain = NUMBERS_AND_TEXT[base](value)
            self.facts[path] = Fact(_name_of(cls), plain, "value", text_of(plain))
        else:
            self.facts[path] = Fact(_name_of(cls), "", "value", _name_of(cls))
        self._describe_attributes(path, value)

    def _describe_array(self, path: str, value: Any) -> None:
        """Add the facts about a NumPy array or a NumPy number."""
        name = f"{_name_of(type(value))} {value.dtype}"
        if value.dtype.hasobject and value.dtype.names is None:
            self.facts[path] = Fact(name, value.shape, "items", shown(list(value.flat)))
            for index, item in enumerate(value.flat):
                self._describe(f"{path}[{index}]", item)
        elif value.dtype.kind in "fciub" and value.dtype.itemsize <= _LARGEST_NUMBER:
            self.facts[path] = Fact(name, torch.tensor(value.tolist()).reshape(value.shape), "tensor", shown(value.tolist()))
        else:
            self.facts[path] = Fact(name, (value.shape, value.tobytes()), "value", shown(value.tolist()))

    def _describe_container(self, path: str, value: Any, base: Any) -> None:
        cls = _name_of(type(value))
        if issubclass(base, dict):
            items = list(base.items(value))
            if id(value) in self._groups:
                items = [(key, item) for key, item in items if key != _SET_BY_DYNAMO]
            keys = [text_of(key) for key, _ in items]
            self.facts[path] = Fact(cls, tuple(keys), "items", shown(value))
            for (key, item), text in zip(items, keys, strict=True):
                if not is_constant(key):
                    self._describe(f"key {text} of {path}", key)
                self._describe(f"{path}[{text}]", item)
            if base is defaultdict:
                self._describe(f"{path}.default_factory", value.default_factory)
            return
        items = list(base.__iter__(value))
        if base in (set, frozenset):
            known = [self._seen[id(item)][0] if id(item) in self._seen and not is_constant(item) else "" for item in items]
            members = sorted((text_of(item), same) for item, same in zip(items, known, strict=True))
            self.facts[path] = Fact(cls, tuple(members), "items", shown(value))
            others = [item for item in items if not is_constant(item) and id(item) not in self._seen]
            for index, item in enumerate(sorted(others, key=text_of)):
                self._describe(f"{path}{{{index}}}", item)
            return
        self.facts[path] = Fact(cls, len(items), "items", shown(value))
        if base is deque:
            self.facts[f"{path}.maxlen"] = Fact("int", value.maxlen, "value", str(value.maxlen))
        for index, item in enumerate(items):
            self._describe(f"{path}[{index}]", item)

    def _describe_attributes(self, path: str, value: Any) -> None:
        attributes = attributes_of(value)
        if issubclass(type(value), torch.optim.Optimizer):
            self._groups.update((id(group), group) for group in attributes.get("param_groups", ()))
            steps = [state.get(_MOVED_BY_DYNAMO) for state in dict.values(attributes.get("state", {})) if type(state) is dict]
            self._steps.update((id(step), step) for step in steps if isinstance(step, torch.Tensor))
        is_module = issubclass(type(value), torch.nn.Module)
        names = [
            name for name in attributes if OF_COMPILATION.match(name) is None and not (is_module and name in _MODULE_DICTS)
        ]
        # as a decorator, an autocast object keeps the settings to restore in `prev…`; compiled code does not set them
        if issubclass(type(value), torch.autocast):
            names = [name for name in names if not name.startswith("prev")]
        if names:
            self.facts[f"attributes of {path}"] = Fact("", tuple(sorted(names)), "items", ", ".join(sorted(names)))
        for name in names:
            is_hooks = is_module and _OF_HOOKS.match(name) and type(attributes[name]) in (dict, OrderedDict)
            self._describe(f"{path}.{name}", list(attributes[name].values()) if is_hooks else attributes[name])
        if is_module:
            for part in _MODULE_DICTS:
                for name, item in (attributes.get(part) or {}).items():
                    self._describe(f"{path}.{name}", item)
        for name, _, item in slots_of(value):
            self._describe(f"{path}.{name}", item)


def shown(value: Any, depth: int = 0) -> str:
    """Return an object as text for the report of a difference: containers with their items, tensors with sizes and dtype."""
    if issubclass(type(value), torch.Tensor):
        if value.is_nested or is_lazy(value):
            return f"a {type(value).__name__}"
        sizes = "x".join(map(str, value.shape)) or "number"
        return f"tensor {sizes} {str(value.dtype).removeprefix('torch.')}"
    base: Any = built_in_base(type(value))
    if base not in CONTAINERS or depth > 1 or is_constant(value):
        return text_of(value)
    if issubclass(base, dict):
        parts = list(base.items(value))
        items = [f"{text_of(key)}: {shown(item, depth + 1)}" for key, item in parts[:_MAX_SHOWN]]
    else:
        parts = list(base.__iter__(value))
        items = [shown(item, depth + 1) for item in parts[:_MAX_SHOWN]]
        items = sorted(items) if base in (set, frozenset) else items
    more = ", …" if len(parts) > _MAX_SHOWN else ""
    opening, closing = "()" if base is tuple else "[]" if base in (list, deque) else "{}"
    text = f"{opening}{', '.join(items)}{more}{closing}"
    return text if type(value) in (list, tuple, set, dict) else f"{_name_of(type(value))}({text})"


def _name_of(cls: type) -> str:
    """Return the qualified name of a class, without the name of an enclosing function."""
    return cls.__qualname__.rpartition("<locals>.")[2]


def _memory_of(tensor: torch.Tensor) -> int | None:
    """Return the address of the storage of a tensor; None if it has no elements or no storage."""
    try:
        return tensor.untyped_storage().data_ptr() or None
    except (NotImplementedError, RuntimeError):
        return None
