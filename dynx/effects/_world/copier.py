"""Copy objects so that sharing, identity and the memory of tensors are as in the originals, without running the user's code.

`copy.deepcopy` would call overridden `__reduce__`, `append` and `__setitem__`, which may have effects of their own.
"""

from __future__ import annotations

import functools
import io
import random
import warnings
import weakref
from collections import OrderedDict, defaultdict, deque
from copy import deepcopy
from types import BuiltinFunctionType, CellType, FunctionType, GeneratorType, MethodType, SimpleNamespace
from typing import Any

import torch

from dynx._bytecode.cells import is_filled
from dynx.effects._world.layout import CONTAINERS, attributes_of, built_in_base, is_constant, slots_of, view_of
from dynx.effects._world.tensors import TensorCopier

_OF_TORCH = ("torch._dynamo", "torch._inductor", "torch._C", "torch.cuda", "torch.distributed")  # caches, devices, processes


class Copier:
    """Copies objects, each once: an object that is copied twice has one copy.

    What cannot be copied, such as a lock, an open file or a generator, is shared with the copies; `shared` has its class.

    Args:
        in_double: Give floating-point tensors double precision.
    """

    def __init__(self, *, in_double: bool = False) -> None:
        self._copies: dict[int, tuple[Any, Any]] = {}  # by id: the copy, and the original, which keeps its id from reuse
        self._tensors = TensorCopier(in_double=in_double)
        self.shared: dict[str, int] = {}
        self.functions: list[FunctionType] = []  # that were met
        self.copied_functions: list[FunctionType] = []  # copies of those with variables of their own
        self.classes: dict[type, None] = {}  # of the objects that were copied

    def copy(self, value: Any) -> Any:
        """Return the copy of a value."""
        if is_constant(value):
            if issubclass(type(value), type):
                self.classes.setdefault(value)
            return value
        if id(value) in self._copies:
            return self._copies[id(value)][0]
        cls = type(value)
        if issubclass(cls, torch.Tensor):
            return self._copy_tensor(value)
        if cls is FunctionType:
            return self._copy_function(value)
        if cls is CellType:
            return self._copy_cell(value)
        if (wrapped := self._copy_wrapper(value)) is not None:
            return self._remember(value, wrapped)
        return self._copy_object(value)

    def _remember(self, value: Any, copy: Any) -> Any:
        self._copies[id(value)] = (copy, value)
        return copy

    def _share(self, value: Any) -> Any:
        name = f"{type(value).__module__}.{type(value).__qualname__}".removeprefix("builtins.")
        self.shared[name] = self.shared.get(name, 0) + 1
        return self._remember(value, value)

    def _copy_tensor(self, value: torch.Tensor) -> Any:
        copy = self._remember(value, self._tensors.copy(value, self.copy))
        if value.is_leaf and value.grad is not None:
            copy.grad = self.copy(value.grad)
        self._copy_attributes(value, copy)
        return copy

    def _copy_function(self, value: FunctionType) -> Any:
        """Copy a function if its variables may change; torch knows some functions by their identity."""
        self.functions.append(value)
        if not has_state(value):
            return self._remember(value, value)
        new = [cell for cell in value.__closure__ or () if id(cell) not in self._copies]
        for cell in new:
            self._remember(cell, CellType())
        cells = tuple(self._copies[id(cell)][0] for cell in value.__closure__ or ())
        copy = FunctionType(value.__code__, value.__globals__, value.__name__, None, cells)
        self.copied_functions.append(copy)
        self._remember(value, copy)  # before its variables are copied, one of which may be the function itself
        for cell in new:
            self._fill(self._copies[id(cell)][0], cell)
        copy.__defaults__ = self.copy(value.__defaults__)
        copy.__kwdefaults__ = self.copy(value.__kwdefaults__)
        copy.__qualname__, copy.__module__, copy.__doc__ = value.__qualname__, value.__module__, value.__doc__
        self._copy_attributes(value, copy)
        return copy

    def _copy_cell(self, value: CellType) -> CellType:
        cell = self._remember(value, CellType())
        self._fill(cell, value)
        return cell

    def _fill(self, cell: CellType, original: CellType) -> None:
        try:
            cell.cell_contents = self.copy(original.cell_contents)
        except ValueError:  # the variable has no value
            return

    def _copy_wrapper(self, value: Any) -> Any | None:
        """Copy an object that stands for another one, or whose state is not in attributes; None for other objects."""
        cls = type(value)
        if cls is MethodType:
            return MethodType(self.copy(value.__func__), self.copy(value.__self__))
        if cls is BuiltinFunctionType:  # a method of an object, such as `items.append`
            owner = self.copy(value.__self__)
            return value if owner is value.__self__ else object.__getattribute__(owner, value.__name__)
        if cls is functools.partial:
            arguments = [self.copy(argument) for argument in value.args]
            partial = functools.partial(self.copy(value.func), *arguments, **self.copy(value.keywords))
            self._copy_attributes(value, partial)
            return partial
        if (view := view_of(value)) is not None:
            make, mapping = view
            return make(self.copy(mapping))
        if cls is weakref.ref:
            target = value()
            return value if target is None else weakref.ref(self.copy(target))
        if cls is random.Random:
            generator = random.Random()
            generator.setstate(value.getstate())
            return generator
        if cls is torch.Generator and value is not torch.default_generator:
            return torch.Generator(value.device).set_state(value.get_state())
        if cls.__module__ == "numpy" and cls.__name__ == "ndarray":
            return self._copy_array(value)
        if cls.__module__.startswith("numpy.random"):
            return deepcopy(value)
        if cls in (bytearray, io.BytesIO, io.StringIO):
            return _copy_bytes(value)
        if cls.__module__ in ("builtins", "itertools") and hasattr(cls, "__next__") and cls is not GeneratorType:
            return self._copy_iterator(value)
        return None

    def _copy_array(self, value: Any) -> Any:
        """Copy an array of NumPy, and the objects in one of dtype object."""
        array = value.copy()
        if array.dtype.hasobject and array.dtype.names is None:
            for index, item in enumerate(array.flat):
                array.flat[index] = self.copy(item)
        return array

    def _copy_iterator(self, value: Any) -> Any | None:
        """Copy a built-in iterator at its position; None if it does not tell it."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of Python 3.12: 3.14 cannot copy those of itertools
            try:
                make, arguments, *state = value.__reduce__()
            except TypeError:
                return None
            iterator = make(*map(self.copy, arguments))
            if state and state[0] is not None:
                iterator.__setstate__(self.copy(state[0]))
        return iterator

    def _copy_object(self, value: Any) -> Any:
        cls = type(value)
        base = built_in_base(cls)
        if is_of_torch(value):
            return self._share(value)
        if base in CONTAINERS:
            return self._copy_container(value, base)
        try:
            copy = _empty(value)
        except TypeError:  # its state is in memory of an extension
            return self._share(value)
        self.classes.setdefault(cls)
        self._remember(value, copy)
        self._copy_attributes(value, copy)
        return copy

    def _copy_container(self, value: Any, base: Any) -> Any:
        self.classes.setdefault(type(value))
        if base in (tuple, frozenset):
            items = [self.copy(item) for item in base.__iter__(value)]
            if id(value) in self._copies:  # it contains itself
                return self._copies[id(value)][0]
            is_same = type(value) is base and all(map(_is, items, base.__iter__(value)))
            copy = self._remember(value, value if is_same else base.__new__(type(value), items))
            if not is_same:
                self._copy_attributes(value, copy)
            return copy
        copy = self._remember(value, base.__new__(type(value)))
        if base is deque:
            deque.__init__(copy, (), value.maxlen)
        if base is defaultdict:
            defaultdict.__init__(copy, self.copy(value.default_factory))
        if issubclass(base, dict):
            setter = OrderedDict.__setitem__ if base is OrderedDict else dict.__setitem__
            for key, item in list((OrderedDict if base is OrderedDict else dict).items(value)):
                setter(copy, self.copy(key), self.copy(item))
        elif base is set:
            set.update(copy, [self.copy(item) for item in set.__iter__(value)])
        else:
            base.extend(copy, [self.copy(item) for item in base.__iter__(value)])
        self._copy_attributes(value, copy)
        return copy

    def _copy_attributes(self, value: Any, copy: Any) -> None:
        for _, descriptor, item in list(slots_of(value)):
            descriptor.__set__(copy, self.copy(item))
        if attributes := attributes_of(value):
            into = object.__getattribute__(copy, "__dict__")
            for name, item in list(attributes.items()):
                into[name] = self.copy(item)


def _empty(value: Any) -> Any:
    """Return a new object of the same class without attributes."""
    cls = type(value)
    if issubclass(cls, BaseException):
        return BaseException.__new__(cls, *value.args)
    return SimpleNamespace.__new__(cls) if issubclass(cls, SimpleNamespace) else object.__new__(cls)


def _copy_bytes(value: Any) -> Any:
    if type(value) is bytearray:
        return bytearray(value)
    stream = type(value)(value.getvalue())
    stream.seek(value.tell())
    return stream


def is_of_torch(value: Any) -> bool:
    """Return whether an object belongs to the compiler, a device or a process group, of which there is one."""
    return type(value).__module__.startswith(_OF_TORCH) and not issubclass(type(value), (torch.nn.Module, torch.Tensor))


def has_state(value: Any, seen: set[int] | None = None) -> bool:
    """Return whether a function, or a function that it closes over, has attributes, defaults or variables that may change."""
    seen = set() if seen is None else seen
    if id(value) in seen or is_constant(value) or is_of_torch(value):
        return False
    seen.add(id(value))
    if type(value) is not FunctionType:
        return type(value) is not tuple or any(has_state(item, seen) for item in value)
    contents = [cell.cell_contents for cell in value.__closure__ or () if is_filled(cell)]
    parts = (*contents, *(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values(), *value.__dict__.values())
    return bool(_names_assigned(value)) or any(has_state(part, seen) for part in parts)


def _names_assigned(value: FunctionType) -> set[str]:
    """Return the variables of enclosing functions that a function assigns: `nonlocal` ones."""
    import dis

    free = set(value.__code__.co_freevars)
    return {step.argval for step in dis.get_instructions(value.__code__) if step.opname == "STORE_DEREF"} & free


def _is(one: Any, other: Any) -> bool:
    return one is other
