"""Run a function forward and keep its autograd graph, so that forward and backward pass can be captured separately."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch.autograd.graph import GradientEdge, saved_tensors_hooks

from dynx.errors import UsageError

_ACCUMULATOR = "torch::autograd::AccumulateGrad"
_COMPILED = "CompiledFunctionBackward"
Leaves = Callable[[], AbstractContextManager[Mapping[torch.Tensor, torch.Tensor]]]


class AutogradTape:
    """One forward run of a function and its autograd graph, through which the backward pass may run several times.

    Args:
        call: The function; it takes a list of tensors.
        needs_gradient: For each of these tensors, whether it requires grad.
        leaves: Context manager that replaces parameters by new leaf tensors over the same memory; yields a mapping from each
            parameter to its leaf.
        parameters: The parameters that need gradients.
        runs_again: Whether the backward pass will run several times.

    Attributes:
        results: The results that require grad, by index.
        is_used: Whether each input and parameter gets a gradient, known after `backward`.
        runs_once: Whether the backward pass can run only once, since torch.compile may have compiled it to reuse the memory
            of saved tensors.
    """

    def __init__(
        self,
        call: Callable[[list[Any]], Sequence[Any]],
        needs_gradient: Sequence[bool],
        leaves: Leaves,
        parameters: Sequence[torch.Tensor],
        *,
        runs_again: bool,
    ) -> None:
        self._runs_again = runs_again
        self._call, self._needs, self._leaves, self._parameters = call, needs_gradient, leaves, parameters
        self._inputs: list[torch.Tensor] = []  # those that require grad
        self._leaf_of_parameter: list[torch.Tensor] = []
        self.results: dict[int, torch.Tensor] = {}
        self._held: list[Any] = []
        self._edges: dict[int, GradientEdge] = {}  # to the accumulators in the graph, by ids of their leaves
        self.is_used: list[bool] = []
        self.runs_once = False

    def forward(self, args: list[Any]) -> list[Any]:
        """Run the function; return its results, followed by the tensors that autograd saved for the backward pass."""
        saved: list[torch.Tensor] = []

        def keep(tensor: torch.Tensor) -> torch.Tensor:
            saved.append(tensor.detach())
            return tensor

        with torch.enable_grad(), saved_tensors_hooks(keep, lambda tensor: tensor), self._leaves() as leaves:
            inputs = [arg.detach().requires_grad_(need) for arg, need in zip(args, self._needs, strict=True)]
            outputs = list(self._call(list(inputs)))
            self._leaf_of_parameter = [leaves.get(param, param) for param in self._parameters]
        known = [*inputs, *self._leaf_of_parameter, *self._parameters]
        for leaf in unknown_leaves([output for output in outputs if isinstance(output, torch.Tensor)], known):
            size = tuple(leaf.size())
            raise UsageError(
                f"a tensor of size {size} requires grad, but is neither an argument nor a parameter of a module found by dynx\n"
                "  pass a module instead of a function, or let the function's closure refer to the module with this parameter"
            )
        refuse_reentrant(outputs)
        self._inputs = [tensor for tensor, need in zip(inputs, self._needs, strict=True) if need]
        self.results = {
            index: output for index, output in enumerate(outputs) if isinstance(output, torch.Tensor) and output.requires_grad
        }
        nodes = list(nodes_of(self.results.values()))
        self.runs_once = not self._runs_again and any(node.name() == _COMPILED for node in nodes)
        accumulators = (node for node in nodes if node.name() == _ACCUMULATOR)
        self._edges = {id(node.variable): GradientEdge(node, 0) for node in accumulators}
        return [*(output.detach() if isinstance(output, torch.Tensor) else output for output in outputs), *saved]

    def backward(self, gradients: Sequence[torch.Tensor]) -> list[torch.Tensor | None]:
        """Return the gradients of the inputs that require grad, then those of the parameters; None for an unused tensor.

        May be called several times before `release`, but only once if `runs_once`.
        """
        sources = [*self._inputs, *self._leaf_of_parameter, *self._parameters]  # the function may use parameters and leaves
        all_gradients = self._gradients([self._edges.get(id(source)) for source in sources], gradients)
        inputs, params = len(self._inputs), len(self._parameters)
        of_leaves, of_params = all_gradients[inputs : inputs + params], all_gradients[inputs + params :]
        of_both = zip(of_leaves, of_params, self._leaf_of_parameter, self._parameters, strict=True)
        sums = [of_leaf if leaf is param else sum_of(of_leaf, of_param) for of_leaf, of_param, leaf, param in of_both]
        result = [*all_gradients[:inputs], *sums]
        self.is_used = [gradient is not None for gradient in result]
        return result

    def _gradients(self, edges: Sequence[GradientEdge | None], gradients: Sequence[torch.Tensor]) -> list[torch.Tensor | None]:
        """Return the gradient for each edge, given the gradients of the results; None where there is no edge.

        `torch.autograd.grad` gets edges instead of tensors: an edge leads to the AccumulateGrad node that the forward pass
        used, while a tensor may have a new node by now, since another recording replaced it.
        """
        used = [edge for edge in edges if edge is not None]
        results = list(self.results.values())
        if not used:
            return [None] * len(edges)
        keep = not self.runs_once
        computed = iter(torch.autograd.grad(results, used, gradients, retain_graph=keep, allow_unused=True))
        return [None if edge is None else next(computed) for edge in edges]

    def release(self) -> None:
        """Drop the autograd graph, but keep the attributes that custom autograd functions assigned to `ctx`.

        If the function used a parameter itself, not its new leaf, the graph would keep the parameter's AccumulateGrad node
        alive. This node belongs to the stream of the capture, and later backward passes would wait for that stream.
        """
        self._held, self._edges = [dict(getattr(node, "__dict__", {})) for node in nodes_of(self.results.values())], {}
        self.results = {index: result.detach() for index, result in self.results.items()}


def unknown_leaves(results: Sequence[torch.Tensor], known: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Return the leaf tensors in the autograd graph of the results that are not in `known`."""
    known_ids = {id(tensor) for tensor in known}
    leaves = [node.variable for node in nodes_of(results) if node.name() == _ACCUMULATOR]
    return [leaf for leaf in leaves if id(leaf) not in known_ids]


def refuse_reentrant(results: Sequence[Any]) -> None:
    """Raise UsageError if a reentrant checkpoint is in the autograd graph: it does not support `torch.autograd.grad`."""
    tensors = [result for result in results if isinstance(result, torch.Tensor)]
    if any(node.name() == "CheckpointFunctionBackward" for node in nodes_of(tensors)):
        raise UsageError(
            "torch.utils.checkpoint with use_reentrant=True works only in backward(), so it cannot be captured\n"
            "  pass use_reentrant=False"
        )


def sum_of(gradient: torch.Tensor | None, other: torch.Tensor | None) -> torch.Tensor | None:
    """Return the sum of two gradients; a gradient of None stands for zeros."""
    if gradient is None or other is None:
        return other if gradient is None else gradient
    return gradient + other


def nodes_of(tensors: Iterable[torch.Tensor]) -> Iterator[Any]:
    """Yield each node of the autograd graph of the tensors once."""
    seen: set[Any] = set()
    pending = [tensor.grad_fn for tensor in tensors]
    while pending:
        node = pending.pop()
        if node is not None and node not in seen:
            seen.add(node)
            pending += [following for following, _ in node.next_functions]
            yield node
