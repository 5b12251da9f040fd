"""At which stage and node a difference begins, for faults that are planted in torch or in a backend."""

import operator

import pytest
import torch
from support.wrong_gradients import Doubled
from torch._dynamo.backends import registry
from torch._dynamo.backends.common import aot_autograd
from torch._inductor import config as inductor_config
from torch._inductor import decomposition, lowering
from torch.nn import functional as F

import dynx

aten = torch.ops.aten


@pytest.fixture(autouse=True)
def own_cache_on_disk(monkeypatch, tmp_path):
    """Graphs that were compiled with a fault are not to be found by others."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))


def scaled(gm, is_wrong):
    """Multiply what the wrong nodes return by 1.01."""
    for node in list(gm.graph.nodes):
        if is_wrong(node):
            with gm.graph.inserting_after(node):
                product = gm.graph.call_function(operator.mul, (node, 1.01))
            node.replace_all_uses_with(product)
            product.args = (node, 1.01)
    gm.recompile()
    return gm


def wrong_at(name):
    def wrong_backend(gm, _):
        return scaled(gm, lambda node: node.op.startswith("call_") and name in str(node.target)).forward

    return wrong_backend


def waves(x):
    low = x.cos()
    low = low * 2
    high = low.sin()
    return high + 1


def network(x):
    hidden = x @ x.T
    hidden = F.gelu(hidden)
    hidden = hidden - 1
    return torch.softmax(hidden, 0)


def found(fn, **options):
    """Return stage, node and line, from the `def` on, of the difference."""
    torch.manual_seed(0)
    report = dynx.check(fn, torch.randn(4, 4), calls=1, bisect=True, **options)
    assert report.diffs, "the fault makes no difference"
    line = report.node_location.line - fn.__code__.co_firstlineno if report.node_location is not None else None
    return report.stage, report.node.rpartition(" ")[2], line


@pytest.mark.parametrize(
    ("fn", "name", "line"),
    [
        (waves, "cos", 1),
        (waves, "mul", 2),
        (waves, "sin", 3),
        (network, "matmul", 1),
        (network, "gelu", 2),
        (network, "sub", 3),
    ],
)
def test_wrong_backends(fn, name, line):
    stage, node, at = found(fn, backend=wrong_at(name))
    assert (stage, at) == ("wrong_backend", line)
    assert name in node


@pytest.mark.slow
@pytest.mark.parametrize(("name", "other", "line"), [("sin", "cos", 3), ("cos", "sin", 1)])
def test_wrong_lowerings(name, other, line, monkeypatch):
    operator_, wrong = getattr(aten, name).default, getattr(aten, other).default
    monkeypatch.setitem(lowering.lowerings, operator_, lowering.lowerings[wrong])
    assert found(waves, backend="inductor") == ("inductor", name, line)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("operator_", "wrong", "line"),
    [
        (aten.gelu.default, lambda x, approximate="none": x * torch.sigmoid(1.7 * x) * 1.1, 2),
        (aten._softmax.default, lambda x, dim, half_to_float: torch.exp(x), 4),
    ],
)
def test_wrong_decompositions(operator_, wrong, line, monkeypatch):
    monkeypatch.setitem(decomposition.decompositions, operator_, wrong)
    decomposition.fast_random_decomps.cache_clear()
    stage, _, at = found(network, backend="inductor")
    assert (stage, at) == ("decompositions and partition", line)


@pytest.mark.slow
def test_a_wrong_pass_of_inductor(monkeypatch):
    def spoil(graph):
        scaled(graph.owning_module, lambda node: node.target is aten.sub.Tensor)

    monkeypatch.setattr(inductor_config, "post_grad_custom_post_pass", spoil)
    assert found(network, backend="inductor") == ("inductor", "sub", 3)


@pytest.mark.slow
def test_a_fault_behind_autograd(monkeypatch):
    def compiler(gm, _):
        return scaled(gm, lambda node: node.target is aten.sin.default).forward

    planted = aot_autograd(fw_compiler=compiler)
    planted._tags = ()
    monkeypatch.setitem(registry._COMPILER_FNS, "aot_eager", planted)
    assert found(waves, backend="aot_eager") == ("AOTAutograd", "sin", 3)


def test_dynamo():
    class Slot:
        __slots__ = ("value",)

    def forget(slot, x):
        try:
            del slot.value
        except AttributeError:
            return x * 2
        return x * 3

    report = dynx.check(forget, Slot(), torch.ones(3), backend="aot_eager", bisect=True)
    assert (report.stage, report.node) == ("Dynamo", "")


def test_graphs_after_a_graph_break():
    def broken(x):
        first = x.cos()
        torch._dynamo.graph_break()
        return first.sin()

    assert found(broken, backend=wrong_at("sin")) == ("wrong_backend", "sin", 3)


def test_gradients():
    weight = torch.nn.Parameter(torch.ones(4, 4))

    def layer(x):
        product = x @ weight
        return product.tanh()

    def wrong_backend(gm, _):
        for node in list(gm.graph.nodes):
            if node.target == "tanh":
                with gm.graph.inserting_after(node):
                    wrong = gm.graph.call_function(Doubled.apply, (node,))
                node.replace_all_uses_with(wrong)
                wrong.args = (node,)
        gm.recompile()
        return gm.forward

    assert found(layer, backend=wrong_backend) == ("wrong_backend", "tanh", 2)


@pytest.mark.slow
def test_the_report_names_stage_and_node():
    report = dynx.check(waves, torch.ones(3), backend=wrong_at("sin"), bisect=True)
    assert "it begins in wrong_backend at high = method sin" in report.text
