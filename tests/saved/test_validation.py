"""Codecs that are wrong: each raises an error that names the tensor, or works; torch computes wrong gradients for some."""

import pytest
import torch
from support.saved_training import gradients, graphs_saved

from dynx import saved
from dynx.errors import BadCodec, UsageError

OUTSIDE = torch.ones(1)


def model(x):
    return ((x @ x.T).exp() * 2).sin() @ x


def train(codec, backend="aot_eager", **options):
    x = torch.randn(8, 8, generator=torch.Generator().manual_seed(0), requires_grad=True)
    hooks = saved.hooks(saved.rule(codec), **options)
    return gradients(torch.compile(model, backend=backend), x, hooks=hooks)


def codec_of(pack, unpack, **options):
    return saved.Codec("mine", pack, unpack, **options)


def branching(x):
    return x * 2 if x.sum() > 0 else x


def in_place(x):
    return x.mul_(1)


WRONG = {
    "another shape": (lambda x: x, lambda x: x.reshape(-1), "shape (64,), but pack got shape (8, 8)"),
    "another dtype": (lambda x: x.half(), lambda x: x, "dtype torch.float16, but pack got dtype torch.float32"),
    "another device": (lambda x: x, lambda x: x.to("meta"), "device meta, but pack got device cpu"),
    "no tensor": (lambda x: x, lambda x: 3, "unpack returns int, not a tensor"),
    "several tensors": (lambda x: x, lambda x: (x, x), "unpack returns tuple, not a tensor"),
    "a branch on values": (branching, lambda x: x, "depends on values of the tensor"),
    "a size that depends on values": (lambda x: x.nonzero(), lambda x: x, "depends on values of the tensor"),
    "a tensor from outside": (lambda x: x + OUTSIDE, lambda x: x, "uses a tensor from outside"),
    "in place": (in_place, lambda x: x, "changes the tensor in place"),
    "random numbers in pack": (lambda x: x + torch.rand_like(x), lambda x: x, "draws random numbers"),
    "random numbers in unpack": (lambda x: x, lambda x: x + torch.rand_like(x), "draws random numbers"),
    "an error of its own": (lambda x: x.no_such_method(), lambda x: x, "pack raised AttributeError"),
    "nothing": (lambda x: (), lambda x: torch.ones(8, 8), "pack returns nothing"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_codecs(name):
    pack, unpack, text = WRONG[name]
    with pytest.raises((BadCodec, torch._dynamo.exc.BackendCompilerFailed)) as raised:
        train(codec_of(pack, unpack), cache_hash=name)
    error = raised.value if isinstance(raised.value, BadCodec) else raised.value.inner_exception
    assert isinstance(error, BadCodec)
    assert text in str(error)
    assert "mine cannot store" in str(error)
    assert f"{__file__.rpartition('/')[2]}:" in str(error)


WORKING = {
    "one tensor twice": (lambda x: [y := x * 2, y], lambda packed: packed[1] / 2),
    "the tensor itself": (lambda x: x, lambda x: x),
    "a view": (lambda x: x.unsqueeze(0), lambda x: x.squeeze(0)),
    "constants": (lambda x: (x.dtype, None, 2.0, {"stored": x * 2}), lambda packed: packed[3]["stored"] / packed[2]),
    "a size": (lambda x: (x.shape, x.reshape(-1)), lambda packed: packed[1].reshape(packed[0])),
    "a constant tensor": (lambda x: x * torch.tensor(2.0), lambda x: x / torch.tensor(2.0)),
    "other strides": (lambda x: x.T.contiguous(), lambda x: x.T),
    "parameters with defaults": (lambda x, by=2.0: x * by, lambda x, by=2.0: x / by),
    "two tensors": (lambda x: (x[:4], x[4:]), lambda packed: torch.cat(packed)),
    "nothing but constants": (lambda x: 0.0, lambda value: torch.zeros(8, 8)),
}


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("name", [name for name in WORKING if name != "nothing but constants"])
def test_unusual_codecs_that_work(name, backend):
    pack, unpack = WORKING[name]
    expected = train(saved.codecs.recompute(), backend)
    torch._dynamo.reset()
    with graphs_saved() as graphs:
        actual = train(codec_of(pack, unpack, is_exact=True), backend)
    torch.testing.assert_close(actual, expected)
    assert any(tensor.codec == "mine" for tensor in graphs[0].tensors)


def test_a_codec_that_stores_nothing():
    pack, unpack = WORKING["nothing but constants"]
    with graphs_saved() as graphs:
        train(codec_of(pack, unpack))
    assert graphs[0].saved_bytes == 0


@pytest.mark.slow
def test_wrong_results_pass_without_validation():
    """As in torch: here random numbers are added to what is saved."""
    train(codec_of(lambda x: x, lambda x: x + torch.rand_like(x)), validate=False)


def test_eager_code_is_checked_too():
    x = torch.randn(8, 8, requires_grad=True)
    with saved.hooks(saved.rule(codec_of(lambda x: x, lambda x: x.reshape(-1)))):
        loss = model(x).sum()
    with pytest.raises(BadCodec, match="unpack returns shape"):
        loss.backward()


def test_a_codec_that_cannot_be_hashed():
    with pytest.raises(UsageError, match="cache_hash"):
        saved.hooks(saved.rule(codec_of(lambda x: x + OUTSIDE, lambda x: x)))


class TestTorch:
    """The same with torch's own hooks, as GraphModules."""

    def gradient(self, pack, unpack):
        x = torch.randn(8, 8, generator=torch.Generator().manual_seed(0), requires_grad=True)
        pair = torch.fx.symbolic_trace(pack), torch.fx.symbolic_trace(unpack)
        with torch._functorch.config.patch(saved_tensors_hooks_filtering_mode="all"):
            with torch.autograd.graph.saved_tensors_hooks(*pair):
                loss = torch.compile(lambda x: x.exp().sum(), backend="aot_eager")(x)
            loss.backward()
        return x.grad

    def test_a_wrong_shape_is_a_wrong_gradient_silently(self):
        right = self.gradient(lambda x: x * 1, lambda x: x * 1)
        torch._dynamo.reset()
        wrong = self.gradient(lambda x: x * 1, lambda x: x.sum(0, keepdim=True))
        assert wrong.shape == right.shape
        assert not torch.allclose(wrong, right)
