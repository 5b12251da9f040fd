"""Copy objects without running the user's code; the copies share objects and tensor memory as the originals do.

`copy.deepcopy` would call overridden `__reduce__`, `append` and `__setitem__`, which may have side effects. Functions, classes
and modules are not copied, since torch compares them by identity. Instead, `World` temporarily sets their variables to copies.
"""

from __future__ import annotations

import enum
import operator
import threading
from collections import defaultdict, deque
from contextvars import ContextVar
from logging import Handler, Logger
from types import FunctionType, ModuleType, SimpleNamespace
from typing import Any

import torch

from dynx.effects._world.layout import (
    CONTAINERS,
    NUMBERS_AND_TEXT,
    attributes_of,
    built_in_base,
    is_constant,
    is_of_torch,
    slots_of,
)
from dynx.effects._world.tensors import TensorCopier
from dynx.effects._world.wrappers import copy_wrapper, deep_copy


class Copier:
    """A copier of objects, which copies each object once. Its attributes list objects that it found and did not copy.

    Args:
        in_double: Convert floating-point tensors to double precision.

    Attributes:
        shared: Objects that cannot be copied, such as a lock, an open file or a generator; the original is used.
        functions: The functions that were found.
        classes: The classes that were found, and the classes of copied objects.
        modules: The modules that were found.
        context_variables: The context variables that were found.
        loggers: The loggers that were found.
    """

    def __init__(self, *, in_double: bool = False) -> None:
        self._copies: dict[int, tuple[Any, Any]] = {}  # by id: the copy and the original, whose id is not reused
        self._tensors = TensorCopier(in_double=in_double)
        self.shared: dict[int, Any] = {}  # by id
        self.functions: list[FunctionType] = []
        self.classes: dict[type, None] = {}
        self.modules: dict[int, ModuleType] = {}  # by id, since a subclass may define `__eq__`
        self.context_variables: dict[ContextVar[Any], None] = {}
        self.loggers: list[Logger] = []

    def copy(self, value: Any) -> Any:
        """Return a copy; the value itself if it is a constant, function, class or module, or if it cannot be copied."""
        cls = type(value)
        if issubclass(cls, type):
            self.classes.setdefault(value)
            return value
        if issubclass(cls, enum.Enum):
            self.classes.setdefault(cls)
            return value
        if issubclass(cls, ModuleType):
            self.modules.setdefault(id(value), value)
            return value
        if is_constant(value):
            return value
        if id(value) in self._copies:
            return self._copies[id(value)][0]
        if issubclass(cls, torch.Tensor):
            return self._copy_tensor(value)
        if cls is FunctionType:
            self.functions.append(value)
            return self._remember(value, value)
        if cls is ContextVar:
            self.context_variables.setdefault(value)
            return self._remember(value, value)
        if issubclass(cls, Logger):
            self.loggers.append(value)
            return self._remember(value, value)
        if (wrapped := copy_wrapper(value, self.copy)) is not None:
            return self._remember(value, wrapped)
        return self._copy_object(value)

    def _remember(self, value: Any, copy: Any) -> Any:
        self._copies[id(value)] = (copy, value)
        return copy

    def _share(self, value: Any) -> Any:
        self.shared[id(value)] = value
        return self._remember(value, value)

    def _copy_tensor(self, value: torch.Tensor) -> Any:
        copy = self._remember(value, self._tensors.copy(value, self.copy))
        if value.is_leaf and value.grad is not None:
            copy.grad = self.copy(value.grad)
        for hook in tuple((value._backward_hooks or {}).values()) if copy.requires_grad else ():
            copy.register_hook(self.copy(hook))
        self._copy_attributes(value, copy)
        return copy

    def _copy_object(self, value: Any) -> Any:
        cls = type(value)
        base = built_in_base(cls)
        if is_of_torch(value):
            return self._remember(value, value)
        if base in CONTAINERS:
            return self._copy_container(value, base)
        try:
            copy = _empty(value, base)
        except TypeError:  # the state is in memory of a C extension
            copy = deep_copy(value)
            return self._share(value) if copy is None else self._remember(value, copy)
        self.classes.setdefault(cls)
        self._remember(value, copy)
        self._copy_attributes(value, copy)
        return copy

    def _copy_container(self, value: Any, base: Any) -> Any:
        self.classes.setdefault(type(value))
        if base in (tuple, frozenset):
            items = [self.copy(item) for item in base.__iter__(value)]
            if id(value) in self._copies:  # the tuple contains itself
                return self._copies[id(value)][0]
            is_same = type(value) is base and all(map(operator.is_, items, base.__iter__(value)))
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
            for key, item in list(base.items(value)):
                base.__setitem__(copy, self.copy(key), self.copy(item))
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
            into = attributes_of(copy)
            for name, item in list(attributes.items()):
                # keep the lock of a handler, which is held only while the handler writes
                into[name] = item if name == "lock" and issubclass(type(value), Handler) else self.copy(item)


def _empty(value: Any, base: type) -> Any:
    """Return a new object of the class of `value`, without attributes; raise TypeError if only C code can create one."""
    cls = type(value)
    if issubclass(cls, BaseException):
        return BaseException.__new__(cls, *value.args)
    if base in NUMBERS_AND_TEXT:
        return base.__new__(cls, NUMBERS_AND_TEXT[base](value))
    if issubclass(cls, threading.local):
        return threading.local.__new__(cls)
    if issubclass(cls, SimpleNamespace):
        return SimpleNamespace.__new__(cls)
    if base is not object:
        raise TypeError
    return object.__new__(cls)
