"""torch's cache of captures does not compare compilers: a block runs no graph of another one."""

from __future__ import annotations

from contextlib import nullcontext

import pytest
import torch
from torch._dynamo import compiled_autograd

import dynx
from dynx.errors import UsageError


@pytest.fixture(autouse=True)
def _reset():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def net():
    return torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())


def compiler(compiled):
    """Return a backend that appends to `compiled`."""

    def backend(graph, example_inputs):
        compiled.append(graph)
        return graph

    return backend


def step(model):
    model.zero_grad()
    model(torch.ones(2, 4)).sum().backward()


def test_torch_runs_the_graph_of_another_compiler():
    model, compiled = net(), ([], [])
    for each in compiled:
        with compiled_autograd._enable(torch.compile(backend=compiler(each))):
            step(model)
    assert list(map(len, compiled)) == [1, 0]


def test_a_block_with_another_backend_captures_again():
    model, compiled = net(), ([], [])
    for each in compiled:
        with dynx.autograd.capture(compiler(each)) as log:
            step(model)
        assert [capture.reason.kind for capture in log] == ["first"]
    assert list(map(len, compiled)) == [1, 1]


def test_a_block_with_the_same_arguments_continues_the_log():
    model = net()
    for number in range(3):
        with dynx.autograd.capture() as log:
            step(model)
        assert [capture.calls for capture in log] == [number + 1]


def test_a_block_after_a_reset_has_a_log_of_its_own():
    model = net()
    with dynx.autograd.capture() as first:
        step(model)
    torch._dynamo.reset()
    with dynx.autograd.capture() as second:
        step(model)
    assert second is not first
    assert [capture.reason.kind for capture in second] == ["first"]


def test_a_nested_block_leaves_the_outer_one_its_own_graphs():
    model, outer, inner = net(), [], []
    with dynx.autograd.capture(compiler(outer)) as log:
        with dynx.autograd.capture(compiler(inner)):
            step(model)
        step(model)
    assert (len(outer), len(inner)) == (1, 1)
    assert [capture.reason.kind for capture in log] == ["first", "first"]


def test_code_that_enables_compiled_autograd_by_itself_keeps_its_own_graphs():
    model, own, of_block = net(), [], []
    enabled = compiled_autograd._enable(torch.compile(backend=compiler(own)))
    with enabled:
        with dynx.autograd.capture(compiler(of_block)):
            step(model)
        step(model)
        step(model)
    assert (len(own), len(of_block)) == (1, 1)


def test_a_block_within_a_captured_pass_is_refused():
    model = net()

    def hook(gradient):
        with pytest.raises(UsageError, match="captured backward pass is running"), dynx.autograd.capture():
            pass
        return gradient

    model[0].weight.register_hook(torch.compiler.disable(hook))
    with dynx.autograd.capture() as log:
        step(model)
    assert not log.troubles


@pytest.mark.slow  # inductor compiles C++
@pytest.mark.parametrize("is_captured", [False, True])
def test_aotautograd_keeps_no_entry_of_a_forward_pass_whose_backward_is_captured(is_captured, tmp_path, monkeypatch):
    """torch saves an entry when it has compiled the backward graph of AOTAutograd, which a captured pass does not."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    results, gradients = [], []
    for _ in range(2):
        torch._dynamo.reset()
        torch.manual_seed(0)
        model = net()
        block = dynx.autograd.capture(backend="aot_eager") if is_captured else nullcontext()
        with dynx.watch() as watch, block:
            torch.compile(model)(torch.ones(2, 4)).sum().backward()
        assert not watch.troubles
        results += [each.result for each in watch.caches if each.cache == "aot_autograd" and not each.id.startswith("!")]
        gradients.append([parameter.grad for parameter in model.parameters()])
    assert results == (["miss", "miss"] if is_captured else ["miss", "hit"])
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0)
