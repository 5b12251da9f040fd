"""Packed tensors in recordings of CUDA graphs, on the emulator."""

import pytest
import torch
from support.saved_training import exact_hooks, gradients, graphs_saved
from torch import nn

from dynx import cudagraphs, saved
from dynx.errors import UsageError


def model_of():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16))


def backend(**options):
    return cudagraphs.backend(cudagraphs.Config(runtime="emulator", **options))


def test_packed_tensors_are_replayed():
    """Gradients are those of eager code in every step, and the number of recordings does not grow."""
    model, plain = model_of(), model_of()
    compiled = torch.compile(model, backend=backend())
    counts = []
    for step in range(20):
        x = torch.randn(8, 16, generator=torch.Generator().manual_seed(step))
        with exact_hooks():
            actual = gradients(compiled, x, parameters=list(model.parameters()))
        torch.testing.assert_close(actual, gradients(plain, x, parameters=list(plain.parameters())))
        counts.append(cudagraphs.stats().recordings)
    assert counts[-1] == counts[3]
    assert cudagraphs.stats().replays > 20


def test_all_activations_are_packed():
    """torch's mode "donated" packs none for this backend, since it keeps saved tensors."""
    compiled = torch.compile(model_of(), backend=backend())
    with graphs_saved() as graphs, exact_hooks():
        compiled(torch.randn(8, 16))
    assert {tensor.codec for tensor in graphs[0].activations} == {"negated"}


def test_in_place_gradients_are_refused():
    compiled = torch.compile(model_of(), backend=backend(gradients="in_place"))
    with (
        exact_hooks(),
        pytest.raises(torch._dynamo.exc.BackendCompilerFailed, match="not call saved-tensor hooks") as error,
    ):
        compiled(torch.randn(8, 16))
    assert isinstance(error.value.inner_exception, UsageError)


def losses_of(hooks):
    """Return the losses of five training steps, recorded by `train_step`, of which each runs under the hooks."""
    model = model_of()
    compiled = torch.compile(model, backend="aot_eager")

    def loss_of(x):
        with hooks or torch.enable_grad():
            return compiled(x).square().mean()

    step = cudagraphs.train_step(
        loss_of,
        list(model.parameters()),
        torch.randn(8, 16),
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        config=cudagraphs.Config(runtime="emulator"),
    )
    return torch.tensor([float(step(torch.ones(8, 16) * number)) for number in range(1, 6)])


@pytest.mark.slow
def test_train_step():
    """A training step under hooks trains nearly as one without: the difference is that of the codec."""
    plain, packed = losses_of(None), losses_of(saved.hooks(saved.rule(saved.codecs.fp8())))
    assert not torch.equal(plain, packed)
    torch.testing.assert_close(packed, plain, rtol=0.05, atol=1e-3)
