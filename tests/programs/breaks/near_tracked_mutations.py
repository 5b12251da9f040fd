"""Attributes, list and dict items, buffers and a slice of an input are mutated, all in ways that the tracer can follow."""
import torch
from torch import nn


class RunningStats(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(3))
        self.seen = []
        self.extra = {}
        self.last = torch.zeros(3)

    def forward(self, x):
        batch_mean = x.mean(0)
        self.mean.mul_(0.9).add_(batch_mean, alpha=0.1)
        self.last = batch_mean
        self.seen[0] = batch_mean
        self.extra["std"] = x.std(0)
        x[0:1].clamp_(min=0)
        return x - self.mean


torch.manual_seed(0)
stats = RunningStats()
stats.seen.append(torch.zeros(3))
stats.extra["std"] = torch.zeros(3)
forward = torch.compile(stats, backend="eager")
for _ in range(3):
    forward(torch.randn(4, 3))
