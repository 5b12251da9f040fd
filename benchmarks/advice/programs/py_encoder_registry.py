"""Encodes batches of sequences with an encoder built from a frozen config and a registry of activations."""

import copy
import dataclasses
import enum
import functools
import logging

import torch
import torch.nn.functional as F
from torch import nn

logger = logging.getLogger(__name__)


class Activation(enum.Enum):
    GELU = "gelu"
    SILU = "silu"


ACTIVATIONS = {Activation.GELU: functools.partial(F.gelu, approximate="tanh"), Activation.SILU: F.silu}


@dataclasses.dataclass(frozen=True)
class EncoderConfig:
    width: int = 16
    layers: int = 3
    activation: Activation = Activation.GELU
    residual_scale: float = 0.5

    @property
    def hidden(self):
        return 2 * self.width


@functools.cache
def inverse_frequencies(width):
    return tuple(10000.0 ** (-2 * i / width) for i in range(width // 2))


class Block(nn.Module):
    def __init__(self, config, index):
        super().__init__()
        self.config = config
        self.index = index
        self.norm = nn.LayerNorm(config.width)
        self.up = nn.Linear(config.width, config.hidden)
        self.down = nn.Linear(config.hidden, config.width)

    def forward(self, x):
        if x.shape[-1] != self.config.width:
            raise ValueError(f"block {self.index} takes {self.config.width} features, got {tuple(x.shape)}")
        activation = ACTIVATIONS[self.config.activation]
        return x + self.config.residual_scale**self.index * self.down(activation(self.up(self.norm(x))))


class Encoder(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.register_buffer("frequencies", torch.tensor(inverse_frequencies(config.width)), persistent=False)
        self.blocks = nn.ModuleList(Block(config, index) for index in range(config.layers))

    @torch.no_grad()
    def positions(self, length):
        angles = torch.arange(length).unsqueeze(1) * self.frequencies
        return torch.cat((angles.sin(), angles.cos()), dim=-1)

    def forward(self, x):
        x = x + self.positions(x.shape[1])
        for block in self.blocks:
            x = block(x)
        return x.mean(1)


@torch.no_grad()
def update_average(average, model, decay):
    for slow, fast in zip(average.parameters(), model.parameters(), strict=True):
        slow.lerp_(fast, 1.0 - decay)


def main():
    torch.manual_seed(0)
    model = Encoder(EncoderConfig())
    average = copy.deepcopy(model)
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for step, length in enumerate((12, 7, 20, 9, 15)):
        batch = torch.randn(4, length, 16)
        torch._dynamo.mark_dynamic(batch, 1)
        loss = (compiled(batch) - 1.0).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        update_average(average, model, decay=0.9)
        logger.debug("length %d", length)
        print(f"step {step}: loss {loss.item():.4f}")
    print(f"drift {(average.blocks[0].up.weight - model.blocks[0].up.weight).norm().item():.4f}")


if __name__ == "__main__":
    main()
