"""`World`: a copy of a function, its arguments and all variables that it names, in which it can be called."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import FunctionType, MethodType, ModuleType
from typing import Any, NamedTuple

from dynx.effects._world.copier import Copier
from dynx.effects._world.layout import ABSENT, attributes_of, is_constant
from dynx.effects._world.variables import Namespace, Variable, is_of_user, methods_of, variables_of_class, variables_of_function


class Call(NamedTuple):
    """The arguments of one call."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]


class World:
    """A copy of a function, of the arguments of each call, and of the variables that the function names.

    While the world is entered, variables have the copies as values; the originals are back afterwards.

    Args:
        fn: A function, method, module or callable object that is not compiled.
        calls: Arguments of the calls; an object in several of them has one copy.
        state: Further objects that the function changes, by name: modules, classes, or objects with attributes.
        in_double: Give floating-point tensors double precision.
    """

    def __init__(self, fn: Any, calls: Sequence[Call], state: Mapping[str, Any], *, in_double: bool = False) -> None:
        copier = Copier(in_double=in_double)
        self.fn = copier.copy(fn)
        self.calls = [Call(tuple(map(copier.copy, call.args)), copier.copy(call.kwargs)) for call in calls]
        self._values: dict[Variable, Any] = {}
        self._names: dict[Namespace, set[str]] = {}
        known: set[tuple[int, str]] = set()
        self._namespaces: dict[int, Namespace] = {}
        for variable in _variables(fn, copier, state):
            if isinstance(variable, Namespace):
                self._namespaces.setdefault(id(variable.owner), variable)
            elif variable.key not in known:
                known.add(variable.key)
                value = variable.get()
                self._values[variable] = value if is_constant(value) else copier.copy(value)
        self.shared: Mapping[str, int] = copier.shared
        methods = [method for cls in copier.classes for method in methods_of(cls)]
        every = {*copier.functions, *copier.copied_functions, *methods}
        self.functions = [function for function in every if is_of_user(function.__code__)]

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Give the variables their values in this world; at the end, keep the values and restore the originals."""
        originals = {variable: variable.get() for variable in self._values}
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
        """Add the attributes that the code has given to classes, modules and functions."""
        known = {variable.key for variable in self._values}
        for namespace, names in self._names.items():
            for name in sorted(namespace.names() - names):
                variable = Variable(f"{namespace.path}.{name}", namespace.owner, name)
                if variable.key not in known:
                    self._values[variable] = variable.get()

    def roots(self, call: Call) -> dict[str, Any]:
        """Return by path what a call may change, while the world is entered."""
        self._add_new_variables()
        roots: dict[str, Any] = {}
        owner = getattr(self.fn, "__self__", None) if isinstance(self.fn, MethodType) else None
        if owner is not None or not isinstance(self.fn, FunctionType):
            roots["self"] = owner if owner is not None else self.fn
        roots.update((f"args[{index}]", value) for index, value in enumerate(call.args))
        roots.update((f"kwargs.{name}", value) for name, value in call.kwargs.items())
        if isinstance(self.fn, FunctionType):
            roots["function"] = self.fn
        values = {variable.path: variable.get() for variable in self._values}
        roots.update((path, value) for path, value in values.items() if value is not ABSENT)
        return roots


def _variables(fn: Any, copier: Copier, state: Mapping[str, Any]) -> Iterator[Variable | Namespace]:
    """Yield the variables that a function names, and those that the functions and classes in their values name."""
    for name, value in state.items():
        yield from _variables_of_state(name, value)
    done: set[int] = set()
    while True:
        functions = [function for cls in tuple(copier.classes) for function in methods_of(cls)] + copier.functions
        new = [value for value in functions if id(value) not in done]
        classes = [cls for cls in tuple(copier.classes) if id(cls) not in done]
        if not new and not classes:
            return
        for cls in classes:
            done.add(id(cls))
            yield from variables_of_class(cls)
        for function in new:
            done.add(id(function))
            yield from variables_of_function(function)


def _variables_of_state(name: str, value: Any) -> Iterator[Variable | Namespace]:
    if isinstance(value, type):
        yield from variables_of_class(value)
        return
    attributes = vars(value) if isinstance(value, ModuleType) else value if type(value) is dict else attributes_of(value)
    for key in tuple(attributes):
        if not (isinstance(key, str) and key.startswith("__")):
            yield Variable(f"{name}.{key}", attributes, key)
