"""Trains a small regressor with AdamW, a cosine schedule with warmup, and a compiled optimizer step."""

import math

import torch
import torch.nn.functional as F
from torch import nn

WARMUP_STEPS = 3
TOTAL_STEPS = 14


def build_model():
    return nn.Sequential(nn.Linear(6, 24), nn.GELU(), nn.Linear(24, 24), nn.GELU(), nn.Linear(24, 1))


def configure_optimizer(model, lr, weight_decay):
    decay = [p for p in model.parameters() if p.dim() >= 2]
    no_decay = [p for p in model.parameters() if p.dim() < 2]
    groups = [
        {"params": decay, "weight_decay": weight_decay},
        {"params": no_decay, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=lr, betas=(0.9, 0.95))


def warmup_cosine(step):
    if step < WARMUP_STEPS:
        return (step + 1) / (WARMUP_STEPS + 1)
    progress = (step - WARMUP_STEPS) / (TOTAL_STEPS - WARMUP_STEPS)
    return 0.5 * (1.0 + math.cos(math.pi * progress))


def main():
    torch.manual_seed(0)
    model = build_model()
    optimizer = configure_optimizer(model, lr=1e-2, weight_decay=0.1)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, warmup_cosine)
    forward = torch.compile(model, backend="eager")

    @torch.compile(backend="eager")
    def optimizer_step():
        optimizer.step()

    inputs = torch.randn(64, 6)
    targets = inputs.square().sum(dim=1, keepdim=True)
    for step in range(TOTAL_STEPS):
        loss = F.mse_loss(forward(inputs), targets)
        loss.backward()
        optimizer_step()
        scheduler.step()
        optimizer.zero_grad()
        if step % 4 == 0 or step == TOTAL_STEPS - 1:
            print(f"step {step:2d} loss {loss.item():.4f} lr {float(scheduler.get_last_lr()[0]):.4f}")


if __name__ == "__main__":
    main()
