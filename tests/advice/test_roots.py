"""A graph break that multiplies recompiles is one finding if its fix is proven; else each recompile has its own finding."""

from __future__ import annotations

import math

import torch
from torch._dynamo import graph_break as leave

import dynx
from dynx.advice import expected_breaks
from dynx.session import Watch


class Quantize(torch.nn.Module):
    def forward(self, x):
        scale = x.abs().max().item() / 127
        return (x / scale).round() * scale


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(8, 8)
        self.quantize = Quantize()

    def forward(self, x):
        return self.quantize(self.linear(x)).relu()


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = Block(), Block()

    def forward(self, x):
        return self.second(self.first(x))


def run(watch):
    torch.manual_seed(0)
    compiled = torch.compile(Net(), backend="eager")
    with watch:
        for size in range(4, 10):
            compiled(torch.randn(size, 8))
    return watch


def test_recompiles_of_functions_that_a_break_splits_off_are_part_of_its_finding():
    watch = run(Watch(what_if=math.inf))
    root, other = watch.findings
    assert (root.rule, other.rule) == ("DX202", "DX102")
    assert root.location.own.function == "Quantize.forward"
    assert root.advice.startswith("torch._dynamo.config.capture_scalar_outputs = True (proven: no graph break)")
    count = int(root.title.partition("127; ")[2].partition(" recompiles of ")[0])
    assert count + other.count == len(watch.recompiles)
    assert root.seconds + other.seconds <= sum(compile.seconds for compile in watch.compiles)
    assert sum(line.startswith(("DX1", "DX3")) for line in root.evidence) >= 3


def test_they_are_gone_when_the_fix_is_made():
    count = len(run(Watch(what_if=math.inf)).recompiles)
    torch._dynamo.reset()
    with torch._dynamo.config.patch(capture_scalar_outputs=True):
        followed = run(dynx.watch())
    assert not followed.graph_breaks
    assert len(followed.recompiles) == 1 < count
    assert {finding.rule for finding in followed.findings} == {"DX102"}


def test_without_a_proof_each_recompile_has_its_finding():
    watch = run(dynx.watch())
    assert len(watch.findings) >= 4
    assert sum(finding.count for finding in watch.findings if finding.rule.startswith("DX1")) == len(watch.recompiles)


def test_a_break_that_splits_nothing_off_takes_no_recompile():
    @torch.compile(backend="eager")
    def f(x):
        print("inside")
        return x + 1

    @torch.compile(backend="eager")
    def g(x):
        return x * 2

    with Watch(what_if=math.inf) as watch:
        f(torch.ones(3))
        g(torch.ones(3))
        g(torch.ones(4))
    assert {finding.rule for finding in watch.findings} == {"DX201", "DX102"}


def test_the_break_of_an_optimizers_step_is_no_finding():
    weight = torch.nn.Parameter(torch.ones(4))
    optimizer = torch.optim.SGD([weight], lr=0.1)
    weight.grad = torch.ones(4)
    step = torch.compile(lambda: optimizer.step(), backend="eager")
    with dynx.watch() as watch:
        step()
    assert [found.rule for found in watch.graph_breaks] == ["DX221"]
    assert not watch.findings


def test_a_break_of_torch_optim_is_expected_under_any_name_and_one_of_the_user_is_not():
    def step(x):
        x = x + 1
        leave()
        return x * 2

    parameter = torch.nn.Parameter(torch.ones(3))
    parameter.grad = torch.ones(3)
    update = torch.compile(torch.optim.Adam([parameter]).step, backend="eager")
    with dynx.watch() as watch:
        torch.compile(step, backend="eager")(torch.ones(3))
        update()
    assert [each.rule for each in watch.findings if each.rule in ("DX216", "DX221")] == ["DX216"]
    assert [each.rule for each in expected_breaks(watch.run)] == ["DX221"]


class Growing(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.quantize, self.history = Quantize(), []

    def forward(self, x):
        x = self.quantize(x)
        self.history.append(1)
        return x * len(self.history)


def test_a_list_that_grows_is_a_finding_of_its_own_beside_a_break_whose_fix_would_not_stop_it():
    with Watch(what_if=math.inf) as watch:
        compiled = torch.compile(Growing(), backend="eager")
        for _ in range(4):
            compiled(torch.ones(3))
    assert any("self.history" in each.title for each in watch.findings if each.rule == "DX104")


class Interaction(torch.nn.Module):
    """As in a graph network: `fill_diagonal_` needs the exact number of atoms, and `nonzero` breaks the graph."""

    def forward(self, x):
        close = (x[:, None] - x[None]).abs().lt(1).fill_diagonal_(False)  # exact
        rows, _ = close.nonzero(as_tuple=True)  # breaks
        return x + torch.zeros_like(x).index_add(0, rows, x[rows])


class Interactions(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList(Interaction() for _ in range(2))

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


def test_a_size_that_a_line_needs_exactly_is_a_finding_of_its_own_and_one_line_has_one_finding():
    """Without the graph break, the size is fixed too: the seconds of its recompiles are not those of the break."""
    torch.manual_seed(0)
    compiled = torch.compile(Interactions(), backend="eager")
    with Watch(what_if=math.inf) as watch:
        for size in (6, 7, 9, 8):
            compiled(torch.randn(size))
    rules = [finding.rule for finding in watch.findings]
    assert sorted(rules) == ["DX102", "DX206"]
    size = watch.findings[rules.index("DX102")]
    assert "fill_diagonal_" in size.title
    assert size.count >= 2
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        torch._dynamo.reset()
        compiled = torch.compile(Interactions(), backend="eager")
        with Watch() as without:
            for size in (6, 7, 9, 8):
                compiled(torch.randn(size))
    assert len(without.graph_breaks) == 0
    assert len(without.recompiles) >= 2


def logged(x, diagnostics):
    y = x.sin()
    print("step")
    diagnostics["norm"] = y.norm()
    return y * 2


def of_a_new_key(watch):
    torch._dynamo.reset()
    compiled, diagnostics = torch.compile(logged, backend="eager"), {}
    with watch:
        for _ in range(3):
            compiled(torch.ones(3), diagnostics)
    return watch


def test_a_recompile_for_a_key_of_an_argument_has_its_own_finding():
    """The program fills the dictionary: without the graph break, the whole function recompiles for its new key."""
    watch = of_a_new_key(Watch(what_if=math.inf))
    (key,) = [finding for finding in watch.findings if finding.rule == "DX104"]
    assert key.title == "keys of diagnostics no 'norm', then 'norm'"
    assert key.seconds > 0
    assert not any("that it splits off" in finding.title for finding in watch.findings)
    (advice,) = [finding.advice for finding in watch.findings if finding.rule.startswith("DX2")]
    assert "proven: no graph break" in advice


def test_it_stays_when_the_graph_break_is_removed():
    with torch._dynamo.config.patch(reorderable_logging_functions={print}):
        watch = of_a_new_key(dynx.watch())
    assert not watch.graph_breaks
    assert [finding.rule for finding in watch.findings] == ["DX104"]
