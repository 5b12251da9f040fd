"""Layers of torch in a recorded training step: all of their operators are captured."""

from __future__ import annotations

import pytest
import torch
from support.configs import config_for
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from dynx import cudagraphs
from dynx.errors import DynxWarning


class Recurrent(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.layer, self.out = kind(8, 8, batch_first=True), nn.Linear(8, 1)

    def forward(self, x):
        return self.out(self.layer(x)[0]).square().mean()


class Attention(nn.Module):
    def __init__(self, options):
        super().__init__()
        self.qkv, self.options = nn.Linear(8, 3 * 16), options

    def forward(self, x):
        q, k, v = (part.unflatten(-1, (2, 8)).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))
        return F.scaled_dot_product_attention(q, k, v, **self.options).square().mean()


class Encoder(nn.Module):
    def __init__(self, **options):
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, **options)

    def forward(self, x):
        return self.layer(x).square().mean()


class Checkpointed(Encoder):
    def forward(self, x):
        return checkpoint(self.layer, x, use_reentrant=False).square().mean()


class Tokens(nn.Module):
    def __init__(self, loss_fn):
        super().__init__()
        self.words, self.out, self.loss_fn = nn.Embedding(10, 8), nn.Linear(8, 10), loss_fn

    def forward(self, x):
        ids = (x[..., 0] * 9).long()
        return self.loss_fn(self.out(self.words(ids)).flatten(0, 1), ids.flatten())


class ConvNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.GELU(), nn.MaxPool2d(2), nn.GroupNorm(2, 4), nn.Dropout2d(0.3)
        )
        self.out = nn.Linear(4, 1)

    def forward(self, x):
        small = F.interpolate(self.layers(x[:, None]), scale_factor=2.0, mode="bilinear")
        return self.out(F.adaptive_avg_pool2d(small, 1).flatten(1)).square().mean()


def smoothed_loss(out, ids):
    return F.cross_entropy(out, ids, label_smoothing=0.1, ignore_index=0)


def weighted_loss(out, ids):
    return F.cross_entropy(out, ids, weight=torch.linspace(0.5, 1, 10, device=out.device))


LAYERS = {
    "LSTM": lambda: Recurrent(nn.LSTM),
    "GRU": lambda: Recurrent(nn.GRU),
    "attention": lambda: Attention({}),
    "causal attention": lambda: Attention({"is_causal": True}),
    "attention with dropout": lambda: Attention({"dropout_p": 0.2}),
    "encoder": lambda: Encoder(dropout=0.1),
    "encoder, norm first": lambda: Encoder(dropout=0.0, norm_first=True, activation="gelu"),
    "encoder, checkpointed": lambda: Checkpointed(dropout=0.1),
    "embedding, smoothed labels": lambda: Tokens(smoothed_loss),
    "embedding, weighted classes": lambda: Tokens(weighted_loss),
    "convolutions": ConvNet,
}


@pytest.mark.parametrize("autocast", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["float32", "autocast"])
@pytest.mark.parametrize("name", LAYERS)
def test_training_steps_of_torch_layers_are_captured_and_match_eager(device, name, autocast):
    autocast = autocast and (device, name) != ("cpu", "LSTM")  # bfloat16 LSTM needs instructions that not every CPU has

    def loss_of(model):
        def loss(x):
            with torch.autocast(device, torch.bfloat16, enabled=autocast):
                return model(x)

        return loss

    models = []
    for _ in range(2):
        torch.manual_seed(0)
        models.append(LAYERS[name]().to(device))
    optimizers = [torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9) for module in models]
    losses = list(map(loss_of, models))
    config = config_for(device)
    step = cudagraphs.train_step(losses[0], models[0].parameters(), optimizer=optimizers[0], config=config)
    for number in range(4):
        x = torch.rand(4, 6, 8, generator=torch.Generator().manual_seed(number)).to(device)
        torch.manual_seed(number)
        actual = step(x)
        torch.manual_seed(number)
        optimizers[1].zero_grad()
        expected = losses[1](x)
        expected.backward()
        optimizers[1].step()
        torch.testing.assert_close(actual, expected.detach())
    torch.testing.assert_close(*(dict(module.named_parameters()) for module in models))
    assert cudagraphs.stats().replays == 3


@pytest.mark.uncaptured
def test_manual_seed_inside_the_loss_runs_uncaptured(device):
    layer = Encoder(dropout=0.3).to(device)

    def loss(x):
        torch.manual_seed(int(torch.initial_seed()) + 1)
        return layer(x)

    step = cudagraphs.train_step(loss, layer.parameters(), config=config_for(device))
    torch.manual_seed(7)
    with pytest.warns(DynxWarning, match="runs uncaptured"):
        actual = [step(torch.ones(4, 6, 8, device=device)) for _ in range(3)]
    torch.manual_seed(7)
    expected = [loss(torch.ones(4, 6, 8, device=device)).detach() for _ in range(3)]
    torch.testing.assert_close(actual, expected)
