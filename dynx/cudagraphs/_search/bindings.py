"""Find and compare what a function reads by name: tensors, numbers, text, functions, and the names that lead to modules."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Sequence
from enum import Enum
from operator import attrgetter, itemgetter
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any

import torch

from dynx._reading.owner import owner_of_class
from dynx._reading.variables import is_name_of_user
from dynx.cudagraphs._search.identity import are_same, identity_of
from dynx.cudagraphs._search.readers import Scope, Values, absence_check
from dynx.cudagraphs._search.search import Edge, Search, functions_behind, is_tensor

Key = tuple[tuple[Hashable, ...], ...]


class Bindings(Search):
    """A search for the values that a function reads by name, besides attributes of modules, with a check for changes."""

    def key(self) -> Key:
        """Return a hashable key of the values that the function reads; if a name gets another value, the key differs."""
        return tuple(
            tuple(None if (edge.owner, edge.name, index) in self.skipped else identity_of(value) for index, value in values)
            for edge, values in ((edge, enumerate(edge.values)) for edge in self.edges)
        )

    def codes(self) -> list[CodeType]:
        """Return the present code objects of the searched functions: a program can assign another code object to `__code__`."""
        return list(map(_code, self.functions))

    def held(self) -> list[Any]:
        """Return the values that the function reads: while the caller holds them, no other object gets one of their ids."""
        return [
            value
            for edge in self.edges
            for index, value in enumerate(edge.values)
            if (edge.owner, edge.name, index) not in self.skipped
        ]

    def tensors(self) -> list[torch.Tensor]:
        """Return the tensors that the function reads, each once."""
        return list({id(value): value for value in self.held() if is_tensor(value)}.values())

    def check(self, watched: Collection[int]) -> Callable[[], bool] | None:
        """Return a predicate that is true while names in the code have the same values; None if there is nothing to compare.

        It compares neither the classes of objects nor the code of functions. `watched` are ids of dicts that the caller
        compares as a whole: names in these are left out.
        """
        reads = _reads([edge for edge in self.edges if edge.scope is None or id(edge.scope) not in watched])
        are_absent = absence_check([absent for absent in self.absent.values() if id(absent[0]) not in watched])
        if not reads:
            return are_absent

        def are_bound() -> bool:
            try:
                for read, values in reads:  # faster than a generator
                    if not are_same(read(), values):
                        return False
                return are_absent is None or are_absent()
            except (LookupError, ValueError, AttributeError, RuntimeError):  # a name was deleted, a container changes now
                return False

        return are_bound


_code = attrgetter("__code__")


def state_read_by(value: Any) -> str:
    """Return the name of a value that a function, class or Enum member depends on and that may change; "" if there is none.

    A function depends on the variables that it reads, except those whose values are Python modules, functions or classes. An
    Enum member depends on the variables that its methods read, a class on its attributes.
    """
    if isinstance(value, Enum):
        methods = (item for base in type(value).__mro__ if owner_of_class(base) == "user" for item in vars(base).values())
        return next(filter(None, (state_read_by(inner) for method in methods for inner in functions_behind(method))), "")
    if isinstance(value, type):
        bases = (base for base in value.__mro__ if owner_of_class(base) == "user")
        named = (name for base in bases for name, item in vars(base).items() if is_name_of_user(name) and not callable(item))
        return next((f"attribute {name} of a class" for name in named), "")
    edges = (edge for edge in Search(value).edges if not all(isinstance(each, _FIXED) for each in edge.values))
    return next(map(str, edges), "")


_FIXED = ModuleType, FunctionType, BuiltinFunctionType, type


def tensors_named_by(function: Callable[..., Any]) -> list[torch.Tensor]:
    """Return the tensors that a function reads by name, besides parameters and buffers of modules; each once."""
    return Bindings(function).tensors()


def _reads(edges: Sequence[Edge]) -> list[tuple[Callable[[], Values], Values]]:
    """Return pairs: a function that reads values, and the values that were found. One function reads all names in a dict."""
    reads, scopes = [], dict[int, tuple[Scope, dict[str, Any]]]()
    for edge in edges:
        if edge.scope is not None:
            scopes.setdefault(id(edge.scope), (edge.scope, {}))[1][edge.name] = edge.values[0]
        elif edge.read is not None:
            reads.append((edge.read, edge.values))
    for scope, values in scopes.values():
        reads.append((_names_reader(scope, list(values)), tuple(values.values())))
    return reads


def _names_reader(scope: Scope, names: Sequence[str]) -> Callable[[], Values]:
    if len(names) == 1:
        name = names[0]
        return lambda: (scope[name],)
    get = itemgetter(*names)
    return lambda: get(scope)
