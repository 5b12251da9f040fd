"""Saved tensors on CUDA: on the host, packed in CUDA graphs, and measured."""

import pytest
import torch
from support.saved_training import exact_hooks, gradients
from torch import nn

from dynx import cudagraphs, saved

pytestmark = pytest.mark.gpu


def model_of(width=256):
    torch.manual_seed(0)
    layers = [nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width), nn.Tanh()] * 2
    return nn.Sequential(*layers).cuda()


def batch(seed=0, width=256):
    return torch.randn(512, width, generator=torch.Generator().manual_seed(seed)).cuda()


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_tensors_on_the_host(backend):
    """The device has none of the bytes between forward and backward, and gradients are bit-equal in each step."""
    model = model_of()
    parameters = list(model.parameters())
    plain = torch.compile(model, backend=backend)
    expected = [gradients(plain, batch(step), parameters=parameters) for step in range(4)]
    torch._dynamo.reset()
    packed = torch.compile(model, backend=backend)
    hooks = saved.hooks(saved.rule(saved.codecs.offload()))
    actual = [gradients(packed, batch(step), parameters=parameters, hooks=hooks) for step in range(4)]
    torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-4)
    report = saved.report(model, batch(), hooks=hooks, backend=backend)
    assert report.saved_bytes == 0
    assert report.bytes > 0


def test_tensors_on_the_host_in_eager_code():
    model = model_of()
    parameters = list(model.parameters())
    expected = gradients(model, batch(), parameters=parameters)
    actual = gradients(model, batch(), parameters=parameters, hooks=saved.hooks(saved.rule(saved.codecs.offload())))
    torch.testing.assert_close(actual, expected, rtol=0, atol=0)


@pytest.mark.parametrize("inner", ["eager", "inductor"])
def test_packed_tensors_in_cuda_graphs(inner):
    model = model_of()
    parameters = list(model.parameters())
    compiled = torch.compile(model, backend=cudagraphs.backend(cudagraphs.Config(inner=inner)))
    recordings = []
    for step in range(20):
        actual = gradients(compiled, batch(step), parameters=parameters, hooks=exact_hooks())
        torch.testing.assert_close(actual, gradients(model, batch(step), parameters=parameters), rtol=1e-3, atol=1e-2)
        recordings.append(cudagraphs.stats().recordings)
    assert recordings[-1] == recordings[4]


def test_train_step_under_hooks():
    losses = []
    for hooks in (saved.hooks(), saved.hooks(saved.rule(saved.codecs.fp8()))):
        model = model_of()
        compiled = torch.compile(model, backend="aot_eager")
        step = train_step_of(model, compiled, hooks)
        losses.append([float(step(batch(number))) for number in range(5)])
    torch.testing.assert_close(*map(torch.tensor, losses), rtol=0.02, atol=1e-3)


def train_step_of(model, compiled, hooks):
    def loss_of(x):
        with hooks:
            return compiled(x).square().mean()

    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return cudagraphs.train_step(loss_of, list(model.parameters()), batch(), optimizer=optimizer)


def test_peaks_are_measured():
    model = model_of()
    x = batch()
    plain = saved.report(model, x, backend="aot_eager")
    packed = saved.report(model, x, hooks=saved.hooks(saved.rule(saved.codecs.fp8())), backend="aot_eager")
    assert plain.peaks == packed.peaks == "measured"
    assert packed.forward_peak < plain.forward_peak


def test_bits_are_exact():
    mask = torch.rand(512, 1000, device="cuda") > 0.5
    codec = saved.codecs.bits()
    assert torch.equal(codec.unpack(codec.pack(mask)), mask)
