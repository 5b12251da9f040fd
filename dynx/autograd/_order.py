"""Check that a captured graph runs hooks and accumulates gradients when eager autograd does.

AOTAutograd's graphs return all gradients at their end, so torch reorders the captured graph
(`AutogradCompilerInstance.reorder_*`). Only operations count: which of several hooks between two operations runs first is
checked only for hooks of one parameter.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

from dynx._torch.autograd.captured_graph import hook_kind, hook_number, kind_of
from dynx.records.backward import OrderError


def check_order(graph: torch.fx.GraphModule) -> tuple[OrderError, ...]:
    """Return the nodes of a graph captured by compiled autograd that break one of six rules; empty if there is none.

    - "unpack_hook": runs right before the first operation that uses the tensor;
    - "tensor_pre_hook": runs right after the gradient that it gets;
    - "pre_hook": runs right before the node that it was registered on;
    - "accumulate_grad": follows the gradient, or its hooks, immediately;
    - "post_acc_grad_hook": follows the accumulation of its parameter, in the order of registration;
    - "post_hook": of a node without outputs, follows the last use of what the node got.

    The rules are those of `torch/_dynamo/compiled_autograd.py`. Gradients that are inputs of the graph may be used at any time.

    >>> import torch, dynx
    >>> model = torch.nn.Linear(4, 4)
    >>> with dynx.autograd.capture() as log:
    ...     model(torch.ones(2, 4)).sum().backward()
    >>> dynx.autograd.check_order(log[0].graph)
    ()
    """
    nodes = list(graph.graph.nodes)
    order = _Order(nodes)
    return tuple(error for node in nodes for error in _errors(node, order))


class _Order:
    """Positions of the nodes of a graph, and the number of operations before each of them."""

    def __init__(self, nodes: Sequence[torch.fx.Node]) -> None:
        self.nodes = nodes
        self.position = {node: number for number, node in enumerate(nodes)}
        self.operations: dict[torch.fx.Node, int] = {}
        count = 0
        for node in nodes:
            self.operations[node] = count
            count += kind_of(node) == "operation"

    def last(self, nodes: Sequence[torch.fx.Node]) -> torch.fx.Node | None:
        return max(nodes, key=self.position.__getitem__, default=None)

    def between(self, first: torch.fx.Node, second: torch.fx.Node) -> int:
        """Return the number of operations between two nodes."""
        return self.operations[second] - self.operations[first] - (kind_of(first) == "operation")


def _errors(node: torch.fx.Node, order: _Order) -> Iterator[OrderError]:
    kind = kind_of(node)
    if kind == "accumulate_grad":
        yield from _after(node, "accumulate_grad", _tensors(node.args[:3]), order)
    elif kind == "hook":
        match hook_kind(node):
            case "unpack_hook" | "pre_hook" as rule:
                yield from _before_user(node, rule, order)
            case "tensor_pre_hook":
                yield from _after(node, "tensor_pre_hook", _tensors(node.args[1:2]), order)
            case "post_acc_grad_hook":
                yield from _after_accumulation(node, order)
            case "post_hook" if not _tensors(node.args[1:2]):
                yield from _after_uses(node, order)


def _after(node: torch.fx.Node, rule: str, inputs: Sequence[torch.fx.Node], order: _Order) -> Iterator[OrderError]:
    last = order.last([_producer(each) for each in inputs])
    if last is not None and kind_of(last) != "input" and (count := order.between(last, node)) > 0:
        yield OrderError(rule, node.name, f"runs {count} operations after {last.name}, which it needs")  # type: ignore[arg-type]


def _before_user(node: torch.fx.Node, rule: str, order: _Order) -> Iterator[OrderError]:
    users = [user for each in _results(node) for user in each.users if not _is_post_hook(user)]
    first = min(users, key=order.position.__getitem__, default=None)
    if first is not None and (count := order.between(node, first)) > 0:
        yield OrderError(rule, node.name, f"runs {count} operations before {first.name}, which uses its result")  # type: ignore[arg-type]


def _after_accumulation(node: torch.fx.Node, order: _Order) -> Iterator[OrderError]:
    parameter = node.args[1]
    assert isinstance(parameter, torch.fx.Node)
    hooks = [user for user in parameter.users if kind_of(user) == "hook" and hook_kind(user) == "post_acc_grad_hook"]
    accumulation = next((user for user in parameter.users if kind_of(user) == "accumulate_grad"), None)
    if accumulation is None or order.position[accumulation] > order.position[node]:
        yield OrderError("post_acc_grad_hook", node.name, "runs before the gradient of its parameter is accumulated")
        return
    since = order.nodes[order.position[accumulation] + 1 : order.position[node]]
    others = [each for each in since if kind_of(each) != "item" and each not in hooks]
    if others:
        yield OrderError("post_acc_grad_hook", node.name, f"runs after {others[-1].name}, not right after {accumulation.name}")
    later = [each for each in since if each in hooks and (hook_number(each) or 0) > (hook_number(node) or 0)]
    if later:
        yield OrderError("post_acc_grad_hook", node.name, f"was registered before {later[0].name}, but runs after it")


def _after_uses(node: torch.fx.Node, order: _Order) -> Iterator[OrderError]:
    inputs = _tensors(node.args[2:3])
    uses = [user for each in inputs for user in each.users if not _is_post_hook(user)]
    yield from _after(node, "post_hook", [*inputs, *uses], order)


def _is_post_hook(node: torch.fx.Node) -> bool:
    return kind_of(node) == "hook" and hook_kind(node) == "post_hook"


def _tensors(arguments: object) -> list[torch.fx.Node]:
    found: list[torch.fx.Node] = []
    torch.fx.node.map_arg(arguments, found.append)
    return found


def _producer(node: torch.fx.Node) -> torch.fx.Node:
    """Return the node that computes the tuple of which `node` is an item; else the node."""
    return _tensors(node.args[:1])[0] if kind_of(node) == "item" else node


def _results(node: torch.fx.Node) -> list[torch.fx.Node]:
    items = [user for user in node.users if kind_of(user) == "item"]
    return items or [node]
