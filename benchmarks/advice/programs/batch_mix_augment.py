"""Mixup/cutout augmentation of image batches, compiled as one function, in front of a small convolutional net."""
import random

import numpy as np
import torch
from torch import nn


def mixup(images, targets, alpha):
    lam = float(np.random.beta(alpha, alpha))
    order = torch.randperm(images.shape[0])
    return lam * images + (1 - lam) * images[order], lam * targets + (1 - lam) * targets[order]


def cutout(images, top, left, size):
    mask = torch.ones_like(images)
    mask[:, :, top:top + size, left:left + size] = 0
    return images * mask


@torch.compile(backend="eager")
def augment(images, targets, alpha, top, left, size=6):
    images, targets = mixup(images, targets, alpha)
    images = cutout(images, top, left, size)
    mean = images.mean(dim=(0, 2, 3), keepdim=True)
    std = images.std(dim=(0, 2, 3), keepdim=True)
    return (images - mean) / (std + 1e-5), targets


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(3, 8, 3, stride=2), nn.ReLU(), nn.Conv2d(8, 16, 3, stride=2), nn.ReLU())
        self.head = nn.Linear(16, 5)

    def forward(self, images):
        return self.head(self.features(images).mean((2, 3)))


class Batches:
    def __init__(self, samples, batch):
        self.images = torch.rand(samples, 3, 24, 24)
        self.labels = torch.randint(0, 5, (samples,))
        self.batch = batch

    def __iter__(self):
        for start in range(0, len(self.images), self.batch):
            stop = start + self.batch
            yield self.images[start:stop], nn.functional.one_hot(self.labels[start:stop], 5).float()


def main():
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for epoch in range(2):
        for images, targets in Batches(72, 20):
            top, left = random.randint(1, 17), random.randint(1, 17)
            images, targets = augment(images, targets, 0.4, top, left)
            loss = nn.functional.cross_entropy(net(images), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch} loss {loss.item():.2f}")


if __name__ == "__main__":
    main()
