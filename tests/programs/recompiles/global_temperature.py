"""A global int that the compiled function reads is changed by the training script."""
import torch

TEMPERATURE = 4


def soften(logits):
    shifted = logits - logits.max()
    return torch.softmax(shifted / TEMPERATURE, dim=-1)  # DX103


def anneal():
    global TEMPERATURE
    TEMPERATURE = TEMPERATURE - 1


torch.manual_seed(0)
compiled = torch.compile(soften, backend="eager")
for epoch in range(3):
    compiled(torch.randn(2, 5))
    anneal()
