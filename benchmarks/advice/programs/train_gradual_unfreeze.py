"""Fine-tunes a small backbone with gradual unfreezing and logs the size of the features of each block."""

import logging

import torch
import torch.nn.functional as F
from torch import nn

logger = logging.getLogger("finetune")


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.fc1 = nn.Linear(dim, 2 * dim)
        self.fc2 = nn.Linear(2 * dim, dim)

    def forward(self, x):
        return x + self.fc2(F.gelu(self.fc1(self.norm(x))))


class Backbone(nn.Module):
    def __init__(self, dim=16, depth=3, classes=4):
        super().__init__()
        self.blocks = nn.ModuleList(Block(dim) for _ in range(depth))
        self.head = nn.Linear(dim, classes)
        self.feature_norms = {}

    def forward(self, x):
        for i, block in enumerate(self.blocks):
            x = block(x)
            self.feature_norms[i] = x.detach().norm(dim=-1).mean()
        logger.debug("features %s", tuple(x.shape))
        return self.head(x)


def freeze(module):
    for p in module.parameters():
        p.requires_grad_(False)


def unfreeze(module):
    for p in module.parameters():
        p.requires_grad_(True)


def train_epoch(model, optimizer, x, y, steps=3):
    for _ in range(steps):
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


def main():
    torch.manual_seed(0)
    backbone = Backbone()
    for block in backbone.blocks:
        freeze(block)
    model = torch.compile(backbone, backend="eager")

    x = torch.randn(32, 16)
    y = x[:, :4].argmax(dim=-1)
    for epoch in range(len(backbone.blocks) + 1):
        if epoch > 0:
            unfreeze(backbone.blocks[-epoch])
        trainable = [p for p in backbone.parameters() if p.requires_grad]
        optimizer = torch.optim.SGD(trainable, lr=0.1, momentum=0.9)
        loss = train_epoch(model, optimizer, x, y)
        norms = " ".join(f"{norm.item():.4f}" for norm in backbone.feature_norms.values())
        print(f"epoch {epoch} params {len(trainable):2d} loss {loss:.4f} features {norms}")


if __name__ == "__main__":
    main()
