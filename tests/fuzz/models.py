"""Models whose output depends on all of their state, generated from a seed or built by transformers."""

from __future__ import annotations

import random

import torch
from torch import nn

GLOBAL = 1.5
_WIDTH = 4


def shifted(x):
    return x + GLOBAL


def closing_over(number):
    def scale(x):
        return x * number

    return scale


def dividing_by(number):
    def divide(x):
        return x / number

    return divide


def adding(number):
    def add(x, by=number):
        return x + by

    return add


class Plain(nn.Module):
    """Holds numbers, strings, functions, tensors and modules, all of which change the output."""

    of_class = 2.0

    def __init__(self, rng: random.Random, depth: int) -> None:
        super().__init__()
        self.flag = rng.random() < 0.5
        self.count = rng.randrange(1, 9)
        self.scale = rng.uniform(0.5, 2)
        self.mode = rng.choice(["relu", "tanh"])
        self.absent = None
        self.act = rng.choice([torch.relu, torch.tanh, torch.sigmoid])
        self.scaled = closing_over(rng.uniform(1, 2))
        self.added = adding(rng.uniform(1, 2))
        self.weight = nn.Parameter(torch.rand(_WIDTH))
        self.register_buffer("offset", torch.rand(_WIDTH))
        self.plain = torch.rand(_WIDTH)
        layers = [nn.Linear(_WIDTH, _WIDTH), nn.LayerNorm(_WIDTH), nn.Dropout(0.0), nn.GELU(), nn.BatchNorm1d(_WIDTH)]
        self.layers = rng.choice([nn.ModuleList, lambda layers: nn.Sequential(*layers)])(rng.sample(layers, 2))
        self.named = nn.ModuleDict({"one": nn.Linear(_WIDTH, _WIDTH, bias=rng.random() < 0.5), "two": nn.ReLU()})
        self.inner = type(self)(rng, depth - 1) if depth else nn.Identity()

    def forward(self, x):
        y = self.inner(x) * self.weight + self.offset + self.plain
        for layer in self.layers:
            y = layer(y)
        for name in self.named:
            y = self.named[name](y)
        if self.flag:
            y = y * 2
        if self.mode == "relu":
            y = torch.relu(y)
        if self.absent is not None:
            y = y - 1
        if self.training:
            y = y + 0.25
        y = y + self.count * self.scale * self.of_class
        return shifted(self.added(self.scaled(self.act(y))))


class Generated(Plain):
    """Holds containers too, for whose contents torch never skips guards."""

    def __init__(self, rng: random.Random, depth: int) -> None:
        super().__init__(rng, depth)
        self.pair = (rng.randrange(5), 2.5)
        self.numbers = [rng.uniform(0, 1) for _ in range(3)]
        self.options = {"a": rng.uniform(0, 1), "b": 2}
        self.kinds = {"x", "y"}

    def forward(self, x):
        y = super().forward(x)
        if "x" in self.kinds:
            y = y + 0.125
        y = y + self.pair[0] + self.pair[1] + len(self.pair)
        for number in self.numbers:
            y = y + number
        for key in self.options:
            y = y + self.options[key]
        return y


def plain(seed: int):
    return _seeded(Plain, seed)


def generated(seed: int):
    return _seeded(Generated, seed)


def _seeded(cls: type[Plain], seed: int):
    rng = random.Random(seed)
    torch.manual_seed(seed)
    return cls(rng, depth=1), (torch.randn(2, _WIDTH),)


def gpt2(seed: int):
    from transformers import GPT2Config, GPT2Model

    torch.manual_seed(seed)
    config = GPT2Config(vocab_size=32, n_positions=8, n_embd=8, n_layer=1, n_head=2, use_cache=False)
    return GPT2Model(config).eval(), (torch.randint(0, 32, (1, 4)),)


def bert(seed: int):
    from transformers import BertConfig, BertModel

    torch.manual_seed(seed)
    config = BertConfig(vocab_size=32, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8)
    return BertModel(config).eval(), (torch.randint(0, 32, (1, 4)),)
