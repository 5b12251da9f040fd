"""Gumbel-softmax vector quantizer whose schedules are descriptors and whose mode is carried in a ContextVar."""

from contextlib import contextmanager
from contextvars import ContextVar

import torch
import torch.nn.functional as F
from torch import nn

quantize_mode = ContextVar("quantize_mode", default="soft")


@contextmanager
def mode(name):
    token = quantize_mode.set(name)
    try:
        yield
    finally:
        quantize_mode.reset(token)


class Annealed:
    """An attribute that decays with the owner's epoch and never falls below its floor."""

    def __init__(self, start, decay, floor):
        self.start, self.decay, self.floor = start, decay, floor

    def __get__(self, owner, kind=None):
        return self if owner is None else max(self.floor, self.start * self.decay**owner.epoch)


class Registry(type):
    kinds = {}

    def __new__(mcls, name, bases, space):
        kind = super().__new__(mcls, name, bases, space)
        mcls.kinds[name.lower()] = kind
        return kind


class Loss(metaclass=Registry):
    def __init__(self, weight=1.0):
        self.weight = weight


class Reconstruction(Loss):
    def __call__(self, x, restored, probs):
        return self.weight * F.mse_loss(restored, x)


class Usage(Loss):
    def __call__(self, x, restored, probs):
        mean = probs.mean(dim=0)
        return self.weight * (mean * (mean + 1e-6).log()).sum()


class Quantizer(nn.Module):
    temperature = Annealed(2.0, 0.7, floor=0.5)

    def __init__(self, dim=8, codes=16):
        super().__init__()
        self.epoch = 0
        self.encode = nn.Sequential(nn.Linear(dim, 32), nn.GELU(), nn.Linear(32, codes))
        self.codebook = nn.Parameter(torch.randn(codes, dim))

    def forward(self, x):
        logits = self.encode(x)
        probs = F.softmax(logits / self.temperature, dim=-1)
        if quantize_mode.get() == "hard":
            probs = F.one_hot(probs.argmax(dim=-1), probs.shape[-1]).to(probs.dtype)
        return probs @ self.codebook, probs


def main():
    torch.manual_seed(0)
    model = Quantizer()
    losses = [Registry.kinds["reconstruction"](), Registry.kinds["usage"](weight=0.05)]
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    data = torch.randn(4, 64, 8)

    @torch.compile(backend="eager")
    def objective(x):
        restored, probs = model(x)
        return sum(loss(x, restored, probs) for loss in losses)

    for epoch in range(8):
        model.epoch = epoch
        for x in data:
            loss = objective(x)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if epoch % 2 == 1:
            with torch.no_grad(), mode("hard"):
                used = model(data.flatten(0, 1))[1].amax(dim=0).sum().item()
            print(f"epoch {epoch + 1} loss {loss.item():.4f} temperature {model.temperature:.3f} codes used {used:.0f}")


if __name__ == "__main__":
    main()
