"""A training loop with warm-up, gradient accumulation, bfloat16 autocast, clipping and an EMA of the weights."""

import copy
import math

import torch
import torch.nn.functional as F
from torch import nn


class Warmup(torch.optim.lr_scheduler.LambdaLR):
    def __init__(self, optimizer, warmup, total):
        super().__init__(optimizer, lambda step: self.factor(step, warmup, total))

    @staticmethod
    def factor(step, warmup, total):
        if step < warmup:
            return (step + 1) / warmup
        return 0.5 * (1 + math.cos(math.pi * (step - warmup) / (total - warmup)))


class EMA:
    def __init__(self, model):
        self.shadow = copy.deepcopy(model).requires_grad_(False)
        self.updates = 0

    @torch.compile
    def update(self, model):
        self.updates += 1
        decay = min(0.999, (1 + self.updates) / (10 + self.updates))
        for mine, theirs in zip(self.shadow.parameters(), model.parameters()):
            mine.lerp_(theirs.detach(), 1 - decay)


class Trainer:
    def __init__(self, model, accumulate, total):
        self.model = model
        self.accumulate = accumulate
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9)
        self.scheduler = Warmup(self.optimizer, warmup=3, total=total)
        self.ema = EMA(model)
        self.micro = 0

    @torch.compile
    def loss(self, x, y):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            logits = self.model(x)
        return F.cross_entropy(logits.float(), y) / self.accumulate

    @torch.compile
    def step(self):
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()

    def train(self, x, y):
        loss = self.loss(x, y)
        loss.backward()
        self.micro += 1
        if self.micro % self.accumulate == 0:
            self.step()
            self.scheduler.step()
            self.optimizer.zero_grad()
            self.ema.update(self.model)
        return loss.detach() * self.accumulate


def batches(count):
    generator = torch.Generator().manual_seed(3)
    centers = torch.randn(4, 16, generator=generator)
    for _ in range(count):
        y = torch.randint(0, 4, (32,), generator=generator)
        yield centers[y] + 0.3 * torch.randn(32, 16, generator=generator), y


def main():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
    trainer = Trainer(model, accumulate=2, total=12)
    losses = [trainer.train(x, y) for x, y in batches(24)]
    print("first", f"{torch.stack(losses[:4]).mean():.1f}", "last", f"{torch.stack(losses[-4:]).mean():.1f}")
    with torch.no_grad():
        x, y = next(batches(1))
        print("ema accuracy", f"{(trainer.ema.shadow(x).argmax(1) == y).float().mean():.2f}")


if __name__ == "__main__":
    main()
