"""A function with the graph that autograd makes of it, to be captured forward and backward."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch.autograd.graph import saved_tensors_hooks

from dynx.errors import UsageError

Leaves = Callable[[], AbstractContextManager[Mapping[torch.Tensor, torch.Tensor]]]


class Traced:
    """Runs a function forward once, and back as often as it is captured."""

    def __init__(
        self,
        call: Callable[[list[Any]], Sequence[Any]],
        needs_gradient: Sequence[bool],
        leaves: Leaves,
        parameters: Sequence[torch.Tensor],
    ) -> None:
        self._call, self._needs, self._leaves, self._parameters = call, needs_gradient, leaves, parameters
        self._given: list[torch.Tensor] = []
        self._leaves_of: list[torch.Tensor] = []  # the parameters
        self.results: dict[int, torch.Tensor] = {}  # those with gradients, by their place
        self._held: list[Any] = []
        self.is_used: list[bool] = []  # of what gradients were asked for

    def forward(self, args: list[Any]) -> list[Any]:
        """Give what the function gives, and behind it what autograd saved: that must stay where it is."""
        saved: list[torch.Tensor] = []

        def keep(tensor: torch.Tensor) -> torch.Tensor:
            saved.append(tensor.detach())
            return tensor

        with torch.enable_grad(), saved_tensors_hooks(keep, _as_it_is), self._leaves() as leaves:
            given = [each.detach().requires_grad_(need) for each, need in zip(args, self._needs, strict=True)]
            outputs = list(self._call(list(given)))
            self._leaves_of = [leaves.get(each, each) for each in self._parameters]
        known = [*given, *self._leaves_of, *self._parameters]
        size = stranger([each for each in outputs if isinstance(each, torch.Tensor)], known)
        if size is not None:
            raise UsageError(
                f"a tensor of size {size} needs gradients, and is no argument and no parameter of a module that is known\n"
                "  have the function be a module, or close over the modules that it uses"
            )
        self._given = [each for each, need in zip(given, self._needs, strict=True) if need]
        self.results = {
            index: each for index, each in enumerate(outputs) if isinstance(each, torch.Tensor) and each.requires_grad
        }
        return [*(each.detach() if isinstance(each, torch.Tensor) else each for each in outputs), *saved]

    def backward(self, gradients: Sequence[torch.Tensor]) -> list[torch.Tensor | None]:
        """Give the gradients of the arguments that need one, and of parameters.

        May be called again until `let_go`.
        """
        wanted = [*self._given, *self._leaves_of, *self._parameters]  # which may be used themselves too, by other ways
        each_of = torch.autograd.grad(list(self.results.values()), wanted, gradients, retain_graph=True, allow_unused=True)
        places, count = len(self._given), len(self._parameters)
        leaves, parameters = each_of[places : places + count], each_of[places + count :]
        same = [leaf is each for leaf, each in zip(self._leaves_of, self._parameters, strict=True)]
        found = [*each_of[:places], *map(_sum, leaves, parameters, same)]
        self.is_used = [each is not None for each in found]
        return found

    def let_go(self) -> None:
        """Forget the graph of autograd, but not what it has saved in places where hooks do not see it.

        Where a parameter itself was used, its node belongs to the stream of the capture: backward passes would wait for that.
        """
        self._held = [_attributes(node) for node in nodes_of(self.results.values())]
        self.results = {index: each.detach() for index, each in self.results.items()}


def stranger(results: Sequence[torch.Tensor], known: Sequence[torch.Tensor]) -> tuple[int, ...] | None:
    """Give the size of a leaf that results need the gradient of, and that is not among those that are known."""
    ours = {id(each) for each in known}
    leaves = (node.variable for node in nodes_of(results) if node.name() == "torch::autograd::AccumulateGrad")
    return next((tuple(each.size()) for each in leaves if id(each) not in ours), None)


def _sum(one: torch.Tensor | None, other: torch.Tensor | None, is_same: bool) -> torch.Tensor | None:
    return other if one is None else one if other is None or is_same else one + other


def nodes_of(tensors: Iterable[torch.Tensor]) -> Iterator[Any]:
    seen: set[Any] = set()
    left = [each.grad_fn for each in tensors]
    while left:
        node = left.pop()
        if node is not None and node not in seen:
            seen.add(node)
            left += [each for each, _ in node.next_functions]
            yield node


def _attributes(node: Any) -> list[Any]:
    """Give what a function written in Python has put on its context."""
    return list(getattr(node, "__dict__", {}).values())


def _as_it_is(tensor: torch.Tensor) -> torch.Tensor:
    return tensor
