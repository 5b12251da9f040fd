"""`dynx.watch()` together with other torch features: one test per row of docs/combinations.md.

Fork, spawn, reset and monkeypatches are tested in tests/cli and tests/trace.
"""

from __future__ import annotations

import threading

import pytest
import torch

import dynx


def add(x):
    return x + 1


def outcomes(watch):
    assert not watch.troubles
    return [(record.id, record.outcome) for record in watch.compiles]


class Counter(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.n = 0

    def forward(self, x):
        self.n += 1
        return x * self.n


def test_watch_records_a_failed_compile_if_fullgraph_reaches_the_recompile_limit():
    compiled = torch.compile(Counter(), backend="eager", fullgraph=True)
    with dynx.watch() as w:
        for _ in range(8):
            compiled(torch.ones(2))
        with pytest.raises(torch._dynamo.exc.FailOnRecompileLimitHit):
            compiled(torch.ones(2))
    assert w.compiles[-1].outcome == "failed"
    assert [record.fatal for record in w.gave_up] == [True]
    assert [finding.rule for finding in w.findings] == ["DX301"]


def test_record_of_the_accumulated_recompile_limit_names_that_limit():
    compiled = torch.compile(Counter(), backend="eager")
    with dynx.watch() as w, torch._dynamo.config.patch(accumulated_recompile_limit=3):
        for _ in range(5):
            compiled(torch.ones(2))
    assert [(record.limit, record.allowed) for record in w.gave_up] == [("accumulated_recompile_limit", 3)]
    assert [finding.rule for finding in w.findings] == ["DX301"]


@pytest.mark.parametrize("strict", [True, False])
def test_watch_records_no_compile_for_torch_export(strict):
    with dynx.watch() as w:
        exported = torch.export.export(torch.nn.Linear(3, 3), (torch.ones(3),), strict=strict)
    assert exported.module()(torch.ones(3)).shape == (3,)
    assert outcomes(w) == []


def test_watch_records_compiled_autograd_graphs():
    compiled = torch.compile(lambda x: (x * x).sum(), backend="eager")
    with dynx.watch() as w, torch._dynamo.compiled_autograd._enable(torch.compile(backend="eager")):
        for size in (3, 4):
            x = torch.ones(size, requires_grad=True)
            compiled(x).backward()
            assert x.grad.sum() == 2 * size
    assert [key for key, _ in outcomes(w) if key.startswith("!")]
    assert sorted(finding.rule for finding in w.findings) == ["DX102", "DX716"]


def test_watch_records_both_compiles_if_a_backend_calls_a_compiled_function():
    inner = torch.compile(lambda x: x * 2, backend="eager")

    def backend(graph_module, inputs):
        inner(torch.ones(2))
        return graph_module.forward

    with dynx.watch() as w:
        torch.compile(add, backend=backend)(torch.ones(3))
    assert outcomes(w) == [("1/0", "compiled"), ("0/0", "compiled")]


def test_watch_records_the_first_compile_and_a_refused_recompile_under_compiler_stances():
    compiled = torch.compile(add, backend="eager")
    with dynx.watch() as w:
        compiled(torch.ones(3))
        with torch.compiler.set_stance("eager_on_recompile"):
            assert compiled(torch.ones(4)).sum() == 8
        with torch.compiler.set_stance("fail_on_recompile"), pytest.raises(RuntimeError, match="recompile"):
            compiled(torch.ones(3, 4))
    assert outcomes(w) == [("0/0", "compiled"), ("0/1", "failed")]


def test_watch_records_a_failed_compile_with_suppress_errors():
    def backend(graph_module, inputs):
        raise RuntimeError("no")

    with dynx.watch() as w, torch._dynamo.config.patch(suppress_errors=True):
        assert torch.compile(add, backend=backend)(torch.ones(3)).sum() == 6
    assert outcomes(w) == [("0/0", "failed")]


def test_watch_records_compiles_with_tensor_subclasses():
    class Mine(torch.Tensor):
        pass

    compiled = torch.compile(add, backend="eager")
    with dynx.watch() as w:
        for size in (3, 4):
            assert type(compiled(torch.ones(size).as_subclass(Mine))) is Mine
    assert [outcome for _, outcome in outcomes(w)] == ["compiled", "compiled"]


def test_watch_records_a_compile_under_fake_tensor_mode():
    from torch._subclasses import FakeTensorMode

    with dynx.watch() as w, FakeTensorMode():
        assert torch.compile(add, backend="eager")(torch.ones(3)).shape == (3,)
    assert outcomes(w) == [("0/0", "compiled")]


@pytest.mark.parametrize(
    "fn",
    [
        torch.vmap(torch.sin),
        torch.func.grad(lambda x: x.sin().sum()),
        lambda x: torch.cond(x.sum() > 0, lambda y: y + 1, lambda y: y - 1, (x,)),
        lambda x: torch.utils.checkpoint.checkpoint(torch.sin, x, use_reentrant=False),
    ],
    ids=["vmap", "grad", "cond", "checkpoint"],
)
def test_watch_records_compiles_of_transforms_and_higher_order_operators(fn):
    expected = fn(torch.ones(3))
    torch._dynamo.reset()  # torch.cond compiles also when called eagerly
    with dynx.watch() as w:
        assert torch.equal(torch.compile(fn, backend="eager")(torch.ones(3)), expected)
    assert outcomes(w) == [("0/0", "compiled")]


def test_watch_records_compiles_of_concurrent_threads():
    def work(n):
        results[n] = torch.compile(lambda x: x * n, backend="eager")(torch.ones(3)).sum().item()

    results = {}
    with dynx.watch() as w:
        threads = [threading.Thread(target=work, args=(n,)) for n in range(2, 6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert results == {n: 3.0 * n for n in range(2, 6)}
    assert len(outcomes(w)) == 4


def test_compile_of_a_torch_nn_module_is_located_at_its_call_site():
    """torch compiles its own modules through one wrapper function that they all share."""
    with dynx.watch() as w:
        torch.compile(torch.nn.Linear(3, 3), backend="eager")(torch.ones(3))
    (compile,) = w.compiles
    assert (compile.location.function, compile.location.file) == ("Linear.forward", __file__)
