"""What a function reads by names: tensors, numbers, text, functions, and the names that lead to modules."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from operator import itemgetter
from typing import Any

import torch

from dynx.cudagraphs._state.identity import are_same, identity_of
from dynx.cudagraphs._state.search import Edge, Search, Values, is_tensor

Key = tuple[tuple[Hashable, ...], ...]


class Bindings:
    """The values that a function reads by names now, besides the attributes of modules.

    Args:
        function: The function, whose code is searched for names.
        skipped: Places that are not checked: the id of a dict and a name; or the id of an owner, a name, and an index.

    Attributes:
        modules: The modules that the function uses, without submodules of these.
        edges: Where the values were found.
        objects: The objects and containers in which they were found, besides modules.
        optimizers: The optimizers among them.
        assigned: The names of attributes that the code assigns.
        variables: The globals that it assigns, its closure variables, and attributes of classes that it may assign.
        functions: The functions whose code was searched.
    """

    def __init__(self, function: Callable[..., Any], skipped: Collection[Hashable] = ()) -> None:
        search = Search(function, skipped)
        self.skipped, self.modules, self.edges, self._names = skipped, search.modules, search.edges, search.names
        self.objects, self.optimizers, self.assigned = search.objects, search.optimizers, search.assigned
        self.variables, self.functions = search.variables, search.functions

    def key(self) -> Key:
        """Return a key that changes if a name gets another value."""
        return tuple(
            tuple(None if (edge.owner, edge.name, index) in self.skipped else identity_of(value) for index, value in values)
            for edge, values in ((edge, enumerate(edge.values)) for edge in self.edges)
        )

    def held(self) -> list[Any]:
        """Return the values: while they are held, no other object gets the same id."""
        return [
            value
            for edge in self.edges
            for index, value in enumerate(edge.values)
            if (edge.owner, edge.name, index) not in self.skipped
        ]

    def tensors(self) -> list[torch.Tensor]:
        """Return the tensors among the values, each once."""
        return list({id(value): value for value in self.held() if is_tensor(value)}.values())

    def reads_attribute(self, name: str) -> bool:
        """Return whether an attribute of this name occurs in the code."""
        return name in self._names

    def check(self) -> Callable[[], bool] | None:
        """Return a predicate that is true while the names have the same values; None if there are no such names."""
        reads = _reads(self.edges)
        if not reads:
            return None

        def are_bound() -> bool:
            try:
                for read, values in reads:  # noqa: SIM110  # faster than a generator
                    if not are_same(read(), values):
                        return False
                return True
            except (LookupError, ValueError, AttributeError, RuntimeError):  # a name was deleted, a container changes now
                return False

        return are_bound


def tensors_named_by(function: Callable[..., Any]) -> list[torch.Tensor]:
    """Return the tensors that a function reaches by names, besides parameters and buffers of modules; each once."""
    return Bindings(function).tensors()


def _reads(edges: Sequence[Edge]) -> list[tuple[Callable[[], Values], Values]]:
    """Return functions that read values, and the values of now: one function for all names that are looked up in a dict."""
    reads, scopes = [], dict[int, tuple[Mapping[str, Any], dict[str, Any]]]()
    for edge in edges:
        if edge.scope is not None:
            scopes.setdefault(id(edge.scope), (edge.scope, {}))[1][edge.name] = edge.values[0]
        elif edge.read is not None:
            reads.append((edge.read, edge.values))
    for scope, values in scopes.values():
        reads.append((_names_reader(scope, list(values)), tuple(values.values())))
    return reads


def _names_reader(scope: Mapping[str, Any], names: Sequence[str]) -> Callable[[], Values]:
    if len(names) == 1:
        name = names[0]
        return lambda: (scope[name],)
    get = itemgetter(*names)
    return lambda: get(scope)
