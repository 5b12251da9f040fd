"""`check_order`: no false alarm in graphs that torch captured, and every rule finds a node that was moved."""

from __future__ import annotations

import random

import pytest
import torch
from backward_models import Model, add_hooks, loss_of

import dynx


def captured(seed: int, forward: str | None = None) -> dynx.autograd.BackwardCapture:
    torch._dynamo.reset()
    torch.manual_seed(seed)
    choice = random.Random(seed)
    model = Model(choice)
    add_hooks(model, choice, [])
    run = torch.compile(model, backend=forward) if forward is not None else model
    with dynx.autograd.capture(backend=None, lines=False) as log:
        loss_of(run, choice, torch.randn(4, 6), []).backward()
    assert not log.troubles
    return log[0]


@pytest.mark.parametrize("seed", range(40))
def test_graphs_of_torch_have_no_error(seed):
    assert captured(seed).order_errors == ()


@pytest.mark.parametrize("seed", range(6))
def test_graphs_with_a_compiled_forward_pass_have_no_error(seed):
    assert captured(seed, "aot_eager").order_errors == ()


def step() -> torch.fx.Graph:
    """Return the captured graph of a pass with hooks of each kind."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    model = torch.nn.Sequential(*(torch.nn.Linear(4, 4) for _ in range(3)))
    for layer in model:
        layer.weight.register_hook(lambda g: g * 1)
        layer.weight.register_post_accumulate_grad_hook(lambda p: None)
        layer.bias.register_post_accumulate_grad_hook(lambda p: None)
        layer.bias.register_post_accumulate_grad_hook(lambda p: None)
    leaves = [torch.autograd.graph.get_gradient_edge(layer.bias).node for layer in model]
    for leaf in leaves:
        leaf.register_hook(lambda inputs, outputs: None)
        leaf.register_prehook(lambda outputs: None)
    with dynx.autograd.capture(backend=None, lines=False) as log:
        with torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t):
            y = model(torch.randn(2, 4)).tanh()
        y.grad_fn.register_prehook(lambda outputs: None)
        y.register_hook(lambda g: g * 2)
        (y * y).sum().backward()
    assert log[0].order_errors == ()
    return log[0].graph.graph


def hooks(graph, kind):
    return [node for node in graph.nodes if node.kwargs.get("hook_type") == kind]


def accumulations(graph):
    return [node for node in graph.nodes if getattr(node.target, "__name__", "") == "call_accumulate_grad"]


def operations(graph):
    """The calls of backward formulas, such as AddmmBackward0."""
    return [node for node in graph.nodes if "Backward0" in getattr(node.target, "__name__", str(node.target))]


def users_of(node):
    """The node and all nodes that need its result."""
    found = [node]
    for each in found:
        found.extend(user for user in each.users if user not in found)
    return sorted(found)


def later(first, count):
    """Move a node, with all that need it, behind `count` operations that follow it."""
    target = [each for each in operations(first.graph) if each > first][count - 1]
    assert not set(users_of(first)) & {target}
    for node in users_of(first):
        if node.op != "output":
            target.append(node)
            target = node


def earlier(node, count):
    """Move a node whose inputs are ready before `count` operations that precede it."""
    before = [each for each in operations(node.graph) if each < node]
    for each in (*node.all_input_nodes, node):
        before[-count].prepend(each)


def swap(first, second):
    second.append(first)


def of_bias(graph, kind):
    """The two hooks of the first bias whose gradient is accumulated."""
    by_parameter = {}
    for hook in hooks(graph, kind):
        by_parameter.setdefault(hook.args[1], []).append(hook)
    return next(pair for pair in by_parameter.values() if len(pair) == 2)


def of_weight(graph):
    """The hook on the gradient of the first weight; it is needed by nothing but the accumulation."""
    return next(hook for hook in hooks(graph, "tensor_pre_hook") if all(user in accumulations(graph) for user in hook.users))


def with_prehook(graph):
    """The accumulation of the first bias, whose node has a pre_hook."""
    items = {item for hook in hooks(graph, "pre_hook") for item in hook.users}
    return next(node for node in accumulations(graph) if items & set(node.all_input_nodes))


SWAPS = {
    "unpack_hook before one operation": ("unpack_hook", lambda g: earlier(hooks(g, "unpack_hook")[1], 1)),
    "unpack_hook before three operations": ("unpack_hook", lambda g: earlier(hooks(g, "unpack_hook")[-1], 3)),
    "tensor_pre_hook after an operation": ("tensor_pre_hook", lambda g: later(of_weight(g), 1)),
    "tensor_pre_hook after two operations": ("tensor_pre_hook", lambda g: later(of_weight(g), 2)),
    "pre_hook long before its node": ("pre_hook", lambda g: later(with_prehook(g), 1)),
    "pre_hook two operations before its node": ("pre_hook", lambda g: later(with_prehook(g), 2)),
    "accumulation after an operation": ("accumulate_grad", lambda g: later(accumulations(g)[0], 1)),
    "accumulation after two operations": ("accumulate_grad", lambda g: later(accumulations(g)[1], 2)),
    "post-accumulate hook before the accumulation": (
        "post_acc_grad_hook",
        lambda g: swap(accumulations(g)[0], hooks(g, "post_acc_grad_hook")[0]),
    ),
    "post-accumulate hooks in another order": ("post_acc_grad_hook", lambda g: swap(*of_bias(g, "post_acc_grad_hook"))),
    "post-accumulate hook after an operation": ("post_acc_grad_hook", lambda g: later(hooks(g, "post_acc_grad_hook")[0], 1)),
    "post_hook after an operation": ("post_hook", lambda g: later(hooks(g, "post_hook")[0], 1)),
    "post_hook after two operations": ("post_hook", lambda g: later(hooks(g, "post_hook")[0], 2)),
}


@pytest.mark.parametrize("swap", SWAPS)
def test_a_node_that_was_moved_is_found(swap):
    rule, change = SWAPS[swap]
    graph = step()
    change(graph)
    graph.lint()
    found = dynx.autograd.check_order(torch.fx.GraphModule({}, graph))
    assert rule in {error.rule for error in found}
