"""Pretrain a small masked autoencoder on images; learning rate and mask change in each step, but live in tensors."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F

PATCH = 4
SIDE = 16


class Encoder(nn.Module):
    def __init__(self, width=32, heads=2):
        super().__init__()
        self.embed = nn.Linear(3 * PATCH**2, width)
        self.pos = nn.Parameter(torch.zeros((SIDE // PATCH) ** 2, width))
        self.norm = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.heads = heads
        self.head = nn.Linear(width, 3 * PATCH**2)
        self.mask_token = nn.Parameter(torch.zeros(width))

    def forward(self, patches, mask):
        x = self.embed(patches)
        x = torch.where(mask[..., None], self.mask_token, x) + self.pos
        q, k, v = self.qkv(self.norm(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        x = x + F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        return self.head(x)


def patchify(images):
    n, c, h, w = images.shape
    x = images.reshape(n, c, h // PATCH, PATCH, w // PATCH, PATCH)
    return x.permute(0, 2, 4, 1, 3, 5).reshape(n, -1, c * PATCH**2)


class Trainer:
    def __init__(self, model):
        self.model = model
        self.lr = torch.tensor(0.0)
        self.running = torch.tensor(0.0)
        self.velocity = [torch.zeros_like(p) for p in model.parameters()]

    @torch.compile
    def loss(self, images, noise):
        patches = patchify(images)
        mask = noise < noise.median(dim=1, keepdim=True).values
        error = (self.model(patches, mask) - patches).square().mean(-1)
        return (error * mask).sum() / mask.sum()

    @torch.no_grad()
    def apply(self):
        for p, v in zip(self.model.parameters(), self.velocity):
            v.mul_(0.9).add_(p.grad)
            p.sub_(self.lr * v)
            p.grad = None

    def step(self, images, noise, progress):
        self.lr.fill_(0.05 * (1 + math.cos(math.pi * progress)) / 2)
        loss = self.loss(images, noise)
        loss.backward()
        self.apply()
        self.running.lerp_(loss.detach(), 0.3)


def main():
    torch.manual_seed(0)
    trainer = Trainer(Encoder())
    gen = torch.Generator().manual_seed(2)
    for step in range(8):
        images = torch.rand(4, 3, SIDE, SIDE, generator=gen)
        noise = torch.rand(4, (SIDE // PATCH) ** 2, generator=gen)
        trainer.step(images, noise, step / 8)
    print(f"running loss {trainer.running.item():.2f}")


if __name__ == "__main__":
    main()
