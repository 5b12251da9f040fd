"""The context manager: nothing is left behind, equal rules compile once, and any thread may use it."""

import threading
import warnings

import pytest
import torch
import torch.nn.functional as F
from support.saved_training import EXACT, exact_hooks, gradients, graphs_saved
from torch._functorch._aot_autograd import graph_compile

from dynx import saved
from dynx._torch.hooks import installed
from dynx.errors import DynxWarning, UsageError


def model(x):
    return (x @ x.T).sin() @ x


def leaf(seed=0):
    return torch.randn(8, 8, generator=torch.Generator().manual_seed(seed), requires_grad=True)


def top_hooks():
    return torch._C._autograd._top_saved_tensors_default_hooks(True)


def test_everything_is_restored():
    before = graph_compile.maybe_inline_graph_saved_tensors_hooks
    with exact_hooks():
        assert graph_compile.maybe_inline_graph_saved_tensors_hooks is not before
    with pytest.raises(ZeroDivisionError), exact_hooks(), exact_hooks():
        raise ZeroDivisionError
    assert graph_compile.maybe_inline_graph_saved_tensors_hooks is before
    assert top_hooks() is None
    assert installed() == ()


def test_new_contexts_with_equal_rules_compile_once():
    compiled = torch.compile(model, backend="aot_eager")
    with graphs_saved() as graphs:
        for _ in range(100):
            with saved.hooks(saved.rule(saved.codecs.fp8(per="tensor"), min_numel=16)):
                loss = compiled(leaf()).sum()
            loss.backward()
    assert len(graphs) == 1


def test_torch_compiles_again_for_each_new_pair_of_hooks():
    """The guard is on the identity of the GraphModules."""
    compiled = torch.compile(model, backend="aot_eager")
    with graphs_saved() as graphs:
        for _ in range(3):
            pair = torch.fx.symbolic_trace(lambda x: x * 1), torch.fx.symbolic_trace(lambda x: x * 1)
            with torch.autograd.graph.saved_tensors_hooks(*pair):
                compiled(leaf())
    assert len(graphs) == 3


def test_other_rules_compile_again():
    compiled = torch.compile(model, backend="aot_eager")
    with graphs_saved() as graphs:
        for codec in (saved.codecs.fp8(), saved.codecs.int8(), saved.codecs.fp8()):
            with saved.hooks(saved.rule(codec)):
                compiled(leaf())
        compiled(leaf())
    assert [graph.hooks for graph in graphs] == [True, True, False]


def test_decorator():
    @exact_hooks()
    def step(x):
        """A step."""
        return torch.compile(model, backend="aot_eager")(x)

    with graphs_saved() as graphs:
        torch.testing.assert_close(gradients(step, leaf()), gradients(model, leaf()))
    assert graphs[0].hooks
    assert step.__doc__ == "A step."


def test_one_object_is_entered_again_and_nested():
    hooks = exact_hooks()
    with hooks, hooks:
        assert top_hooks() is not None
    assert top_hooks() is None


def test_threads():
    """Each thread has hooks of its own; the graphs of another thread are not packed."""
    graphs, errors = {}, []
    ready, calling = threading.Barrier(2, timeout=60), threading.Lock()

    def train(name, hooks):
        try:
            x = torch.randn(4, 4, requires_grad=True)
            ready.wait()
            for _ in range(3):
                with hooks, calling:  # torch 2.11 raises in a call while another thread traces a graph
                    loss = torch.compile(model, backend="aot_eager")(x).sum()
                loss.backward()
            graphs[name] = x.grad
        except RuntimeError as error:
            errors.append(error)

    with graphs_saved() as records:
        threads = [
            threading.Thread(target=train, args=("packed", exact_hooks())),
            threading.Thread(target=train, args=("plain", torch.enable_grad())),
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert errors == []
    assert {graph.hooks for graph in records} == {True, False}


def test_eager_code_between_graphs_is_packed():
    x = leaf()
    with exact_hooks():
        y = x.exp()
        loss = (y * y.sin()).sum()
    stored = [getattr(loss.grad_fn.next_functions[0][0], name) for name in ("_saved_self",)]
    loss.backward()
    assert len(stored) == 1
    assert torch.allclose(x.grad, torch.autograd.functional.jacobian(lambda x: (x.exp() * x.exp().sin()).sum(), leaf()))


def test_eager_parameters_and_inputs_stay():
    packed = []

    def pack(x):
        packed.append(tuple(x.shape))
        return x * 1

    codec = saved.Codec("counting", pack, lambda x: x)
    weight, x = torch.nn.Parameter(torch.randn(8, 4)), torch.randn(2, 4)
    with saved.hooks(saved.rule(codec), cache_hash="counting"):
        loss = F.linear(F.linear(x, weight).tanh(), weight.T).square().sum()
    loss.backward()
    assert (8, 4) not in packed
    assert (4, 8) not in packed
    assert (2, 4) in packed  # the result of the second layer


def test_eager_masks_need_zeros():
    noisy = saved.Codec("noisy", lambda x: x + 1e-6, lambda x: x, keeps_zeros=False)
    x = leaf()
    with saved.hooks(saved.rule(noisy)):
        loss = F.relu(x * 1).sum()
    loss.backward()
    assert torch.equal(x.grad, (x > 0).float())


def test_own_pair():
    @saved.inlineable_hooks(unpack=lambda packed: packed.float())
    def half(x):
        return x.to(torch.bfloat16)

    with graphs_saved() as graphs, half:
        loss = torch.compile(lambda x: x.tanh() * x.sigmoid(), backend="aot_eager")(leaf()).sum()
    loss.backward()
    assert {tensor.codec for tensor in graphs[0].tensors} == {half.rules[0].codec.name}


def test_own_pair_gets_parameters_too():
    """As hooks of torch do."""
    seen = saved.inlineable_hooks(lambda x: x * 1, unpack=lambda x: x)
    layer = torch.nn.Linear(8, 8)
    with graphs_saved() as graphs, seen:
        torch.compile(layer, backend="aot_eager")(leaf())
    assert "param" in {tensor.kind for tensor in graphs[0].tensors if tensor.codec is not None}


@pytest.mark.parametrize(
    "make",
    [
        lambda: saved.hooks(saved.rule(EXACT), schedule="early"),
        lambda: saved.hooks(saved.rule(EXACT), cache_hash=3),
        lambda: saved.inlineable_hooks(unpack=3),
        lambda: saved.inlineable_hooks(3, unpack=torch.neg),
    ],
)
def test_invalid_arguments(make):
    with pytest.raises(UsageError):
        make()


class TestWarnings:
    def train(self, fn, *rules, **options):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", DynxWarning)
            with saved.hooks(*rules, **options):
                torch.compile(fn, backend="aot_eager")(leaf())
        return [str(warning.message) for warning in caught if warning.category is DynxWarning]

    def test_a_rounded_mask(self):
        """Small elements become 0, and their gradient with them."""
        (text,) = self.train(lambda x: F.relu(x * 2) @ x, saved.rule(saved.codecs.fp8()))
        assert "reads which elements are 0" in text
        assert "test_hooks.py:" in text

    def test_exp_of_rounded_values(self):
        def fn(x):
            with torch.autocast("cpu", enabled=False):
                return torch.utils.checkpoint.checkpoint(lambda y: (y @ y).exp() * y, x.sin(), use_reentrant=False)

        with torch._functorch.config.patch(activation_memory_budget=0.5):
            texts = self.train(fn, saved.rule(saved.codecs.fp8()))
        assert all("DX702" in text for text in texts)

    def test_recompute_from_rounded_values(self):
        rules = saved.rule(saved.codecs.recompute(), name="sin"), saved.rule(saved.codecs.fp8())
        texts = self.train(lambda x: (x @ x).sin() @ x.T, *rules)
        assert any("is computed again from" in text for text in texts)

    def test_no_warnings_for_sigmoid_and_gelu(self):
        assert self.train(lambda x: F.silu(F.gelu(x * 2)).sigmoid() @ x, saved.rule(saved.codecs.fp8())) == []

    def test_none_without_validation(self):
        assert self.train(lambda x: F.relu(x * 2) @ x, saved.rule(saved.codecs.fp8()), validate=False) == []
