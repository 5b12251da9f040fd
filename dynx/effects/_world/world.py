"""`World`: a copy of a function, its arguments and all variables that it may read or change.

`World.entered()` sets the variables to the copies while the function is called, and then restores them. An object is named by
its path, such as `args[0]` or `closure.total`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import Context
from itertools import chain, count
from types import FunctionType, MethodType, ModuleType
from typing import Any, NamedTuple

from dynx._reading.owner import owner_of_code
from dynx._reading.variables import ABSENT, Namespace, Variable, is_name_of_user, variables_of_class
from dynx._torch.compilation.in_use import active_modes, functions_of_custom_ops, hooks_of_all_modules, names_of_hooks
from dynx._torch.compilation.unwrap import unwrap
from dynx.effects._world.contents import Contents
from dynx.effects._world.copier import Copier
from dynx.effects._world.environment import Environment
from dynx.effects._world.layout import CONTAINERS, attributes_of, built_in_base, is_of_torch
from dynx.effects._world.reach import libraries_of, variables_found


class Call(NamedTuple):
    """The arguments of one call."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]


class World:
    """A copy of a function, of the arguments of each call, and of all variables that the function may read or change.

    Inside `entered()`, the variables have the copies as values; afterwards they are restored.

    Args:
        fn: A function, method, module or callable object that is not compiled.
        calls: Arguments of the calls; an object that occurs in several calls has one copy.
        state: Further objects that the function changes, by name: modules, classes, containers, or objects with attributes.
        change: A function without arguments that is called between two calls, or None.
        in_double: Convert floating-point tensors to double precision.
    """

    def __init__(
        self,
        fn: Any,
        calls: Sequence[Call],
        state: Mapping[str, Any],
        change: Callable[[], Any] | None = None,
        *,
        in_double: bool = False,
    ) -> None:
        copier = self._copier = Copier(in_double=in_double)
        self.fn = copier.copy(fn)
        self.calls = [Call(tuple(map(copier.copy, call.args)), copier.copy(call.kwargs)) for call in calls]
        self.change = copier.copy(change)
        self._values: dict[Variable | Contents, Any] = {}
        self._keys: set[tuple[int, str]] = set()
        self._namespaces: dict[int, Namespace] = {}
        self._names: dict[Namespace, set[str]] = {}
        self._environment = Environment()
        root: Any = unwrap(fn).function
        for variable in (*_variables_of_state(state), *_variables_in_use(copier.copy)):
            self._add(variable)
        for variable in variables_found(copier, root):
            self._add(variable)
        self.shared = tuple(copier.shared.values())
        self.libraries = libraries_of(copier)  # their variables are not copied
        self.functions = [function for function in copier.functions if owner_of_code(function.__code__) == "user"]

    def _add(self, variable: Variable | Namespace | Contents) -> None:
        if isinstance(variable, Namespace):
            self._namespaces.setdefault(id(variable.owner), variable)
        elif variable.key not in self._keys:
            self._keys.add(variable.key)
            self._values[variable] = self._copier.copy(variable.get())

    @contextmanager
    def entered(self) -> Iterator[None]:
        """In a `with` block, set variables to copies. At its end, keep the values for the next call; restore the originals."""
        originals = {variable: variable.get() for variable in self._values}
        with self._environment.entered():
            try:
                for variable, value in self._values.items():
                    variable.set(value)
                self._names = {namespace: namespace.names() for namespace in self._namespaces.values()}
                yield
            finally:
                self._add_new_variables()
                for variable in self._values:
                    self._values[variable] = variable.get()
                    variable.set(originals.get(variable, ABSENT))

    def _add_new_variables(self) -> None:
        """Add to the world the variables that the called code has created in classes, modules, functions and globals."""
        for namespace, names in self._names.items():
            for name in sorted(namespace.names() - names):
                variable = Variable(f"{namespace.path}.{name}", namespace.owner, name)
                if variable.key not in self._keys:
                    self._keys.add(variable.key)
                    self._values[variable] = variable.get()

    def enter_context(self, context: Context) -> None:
        """Replace the values of context variables in `context` by copies, if the function may use the variables."""
        for variable in self._copier.context_variables:
            if variable in context:
                context.run(variable.set, self._copier.copy(context[variable]))

    def roots(self, call: Call, context: Context) -> dict[str, Any]:
        """Return what a call may change, by path: arguments, variables, context variables. Use only inside `entered()`."""
        self._add_new_variables()
        roots: dict[str, Any] = {}
        if not isinstance(self.fn, FunctionType):
            roots["self"] = self.fn.__self__ if isinstance(self.fn, MethodType) else self.fn
        roots.update((f"args[{index}]", value) for index, value in enumerate(call.args))
        roots.update((f"kwargs.{name}", value) for name, value in call.kwargs.items())
        if isinstance(self.fn, FunctionType):
            roots["function"] = self.fn
        for variable in self._values:
            if (value := variable.get()) is not ABSENT:
                roots[_unused(variable.path, roots)] = value
        for variable_of_context in self._copier.context_variables:
            if variable_of_context in context:
                roots[_unused(f"context.{variable_of_context.name}", roots)] = context[variable_of_context]
        return {**roots, "os.environ": self._environment.changes()}


def _unused(path: str, roots: Mapping[str, Any]) -> str:
    """Return the path, with a number added if a root already has this path (`f.closure.x#2`)."""
    candidates = chain([path], (f"{path}#{number}" for number in count(2)))
    return next(candidate for candidate in candidates if candidate not in roots)


def has_variables(value: Any) -> bool:
    """Return whether `state=` accepts an object: a class, module, mutable container, or an object with a `__dict__`."""
    base = built_in_base(type(value))
    has_attributes = isinstance(value, (type, ModuleType)) or "__dict__" in dir(type(value))
    return has_attributes or (base in CONTAINERS and base not in (tuple, frozenset))


def _variables_of_state(state: Mapping[str, Any]) -> Iterator[Variable | Namespace | Contents]:
    for name, value in state.items():
        base = built_in_base(type(value))
        if isinstance(value, type):
            yield from variables_of_class(value)
            continue
        if base in CONTAINERS and base not in (tuple, frozenset):
            yield Contents(name, value)
        attributes = vars(value) if isinstance(value, ModuleType) else attributes_of(value)
        yield Namespace(name, attributes)
        for key in tuple(attributes):
            if is_name_of_user(key):
                yield Variable(f"{name}.{key}", attributes, key)


def _variables_in_use(copy: Callable[[Any], Any]) -> Iterator[Variable | Namespace]:
    """Yield variables that functions use without naming them: attributes of torch's active modes, dicts of global module hooks.

    Also pass the root logger, functions of custom operators and classes of modes to `copy`, which collects them. The caller
    then calls `variables_found`, which yields the variables that these objects use.
    """
    copy(logging.root)
    for functions in functions_of_custom_ops(_is_not_of_torch):
        for function in functions:
            copy(function)
    for name in names_of_hooks():
        yield Variable(f"torch.nn.modules.module.{name}", hooks_of_all_modules(), name)
    for mode in active_modes():
        if is_of_torch(mode) or type(mode).__module__.startswith("dynx."):  # such as dynx's `RecordDraws`
            continue
        copy(type(mode))
        path, attributes = type(mode).__qualname__, attributes_of(mode)
        yield Namespace(path, attributes)
        for name in tuple(attributes):
            yield Variable(f"{path}.{name}", attributes, name)


def _is_not_of_torch(function: Any) -> bool:
    return type(function) is not FunctionType or owner_of_code(function.__code__) != "torch"
