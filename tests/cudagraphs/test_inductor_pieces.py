"""`inner="inductor"` with operators that cannot be captured: inductor compiles the pieces between them, which are captured."""

from __future__ import annotations

import copy

import pytest
import torch
from support.devices import CPU_AND_CUDA
from support.operators import doubled
from support.rerun_runtime import RerunRuntime
from torch import nn

from dynx import cudagraphs

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


TOLERANCE = {"rtol": 1e-4, "atol": 1e-4}  # inductor computes exp and sums in another way


class Layers(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(8, 16), nn.Linear(16, 4)

    def forward(self, x):
        return self.second(doubled(self.first(x).relu().tanh())).sin().softmax(-1)


class Images(nn.Module):
    """Inductor may give results of convolutions another layout; the operator between them gets that of eager code."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 4, 3)

    def forward(self, x):
        y = doubled(self.first(x).relu().sigmoid())
        return self.second(y).tanh().square().mean((2, 3)) * y.mean()


class Transposed(nn.Module):
    def forward(self, x):
        y = doubled(x.sin().t().cos().exp())
        return (y.t() + x).tanh() @ y.tanh().sin()


class InPlace(nn.Module):
    def forward(self, x):
        y = x.clone().exp().sin()
        y[0] = 3
        y = doubled(y)
        y += x.cos()
        y[1] *= 2
        return y.sin().cos().tanh()


class Several(nn.Module):
    def forward(self, x):
        a, b = doubled(x.sin().cos().exp()), doubled(x.tanh().sin() * x)
        return (a * b).sin().cos() + doubled(a.exp().tanh().sin()).cos().sigmoid()


class Returning(nn.Module):
    """Returns what other pieces read, and views of it."""

    def forward(self, x):
        y = x.sin().cos().exp()
        z = doubled(y).tanh().sigmoid().exp()
        return y, y[0].t() if y.dim() > 2 else y.t(), z, z.sum()


class Dropping(nn.Module):
    def forward(self, x):
        y = nn.functional.dropout(x.exp(), 0.5)
        return nn.functional.dropout(doubled(y).sin().cos(), 0.5) + y.tanh()


MODELS = {
    "layers": (Layers, (6, 8)),
    "images": (Images, (2, 3, 6, 6)),
    "transposed": (Transposed, (5, 8)),
    "in place": (InPlace, (5, 8)),
    "several": (Several, (5, 8)),
    "returning": (Returning, (5, 8)),
}


@pytest.fixture(params=CPU_AND_CUDA)
def device(request, monkeypatch):
    if request.param == "cpu":
        monkeypatch.setattr("dynx.cudagraphs._compiled.backend.select_runtime", lambda *_, **__: RerunRuntime())
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)  # convolutions would differ by more than the tolerance
    torch._dynamo.reset()
    cudagraphs.reset()
    yield request.param
    replays, whole = cudagraphs.stats().replays, cudagraphs.stats().skips
    cudagraphs.reset()
    assert replays > 0
    assert whole, "the operator that cannot be captured is reported"


def compiled(model, *, dynamic=False, **options):
    return torch.compile(model, backend=cudagraphs.backend(cudagraphs.Config(inner="inductor", **options)), dynamic=dynamic)


def tensors_of(results):
    return [results] if isinstance(results, torch.Tensor) else list(results)


def assert_agree(run, model, twin, x):
    xs = x.clone().requires_grad_(), x.clone().requires_grad_()
    results = [tensors_of(call(x)) for call, x in zip((run, twin), xs, strict=True)]
    torch.testing.assert_close(*results, **TOLERANCE)
    for values, module in zip(results, (model, twin), strict=True):
        module.zero_grad()
        sum(value.square().sum() for value in values).backward()
    torch.testing.assert_close(xs[0].grad, xs[1].grad, **TOLERANCE)
    grads = [[param.grad for param in module.parameters()] for module in (model, twin)]
    torch.testing.assert_close(*grads, **TOLERANCE)


@pytest.mark.slow
@pytest.mark.parametrize("outputs", ["clone", "alias"])
@pytest.mark.parametrize("name", MODELS)
def test_training_matches_eager(device, name, outputs):
    make, shape = MODELS[name]
    torch.manual_seed(0)
    model = make().to(device)
    twin, run = copy.deepcopy(model), compiled(model, outputs=outputs)
    for _ in range(4):
        assert_agree(run, model, twin, torch.randn(shape, device=device))


@pytest.mark.parametrize("name", MODELS)
def test_inference_matches_eager(device, name):
    make, shape = MODELS[name]
    torch.manual_seed(0)
    model = make().to(device)
    run, kept = compiled(model), []
    with torch.no_grad():
        for _ in range(4):
            x = torch.randn(shape, device=device)
            kept.append((tensors_of(run(x)), tensors_of(model(x))))
    for results, expected in kept:  # results of earlier calls stay valid
        torch.testing.assert_close(results, expected, **TOLERANCE)


@pytest.mark.slow
def test_channels_last_inputs(device):
    model = Images().to(device)
    twin, run = copy.deepcopy(model), compiled(model)
    for _ in range(4):
        assert_agree(run, model, twin, torch.randn(2, 3, 6, 6, device=device).to(memory_format=torch.channels_last))


@pytest.mark.slow
def test_sizes_that_change(device):
    model = Layers().to(device)
    twin, run = copy.deepcopy(model), compiled(model, dynamic=True)
    for size in (6, 7, 6, 7, 9, 6, 7):
        assert_agree(run, model, twin, torch.randn(size, 8, device=device))


@pytest.mark.slow
def test_dropout_masks_of_forward_and_backward_are_the_same(device):
    run = compiled(Dropping())
    masks = []
    for _ in range(5):
        x = torch.zeros(64, 8, device=device, requires_grad=True)
        (run(x) - doubled(torch.zeros(())).cos()).sum().backward()
        masks.append(x.grad != 0)
    assert len({tuple(mask.flatten().tolist()) for mask in masks}) == 5, "each call draws another mask"
    shares = [mask.float().mean().item() for mask in masks]
    assert all(0.2 < share < 0.9 for share in shares), shares
