"""Training runs an eager model; the compiled teacher is only ever called under no_grad, through two different helpers."""
import torch
from torch import nn

torch.manual_seed(0)
teacher = torch.compile(nn.Sequential(nn.Linear(4, 4), nn.Sigmoid()), backend="eager")
student = nn.Linear(4, 4)


@torch.no_grad()
def targets(x):
    return teacher(x)


def agreement(x):
    with torch.no_grad():
        return (teacher(x) - student(x)).abs().mean()


for _ in range(2):
    x = torch.randn(3, 4)
    (student(x) - targets(x)).pow(2).mean().backward()
    agreement(x)
