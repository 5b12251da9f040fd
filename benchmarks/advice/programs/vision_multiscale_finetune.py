"""Semi-supervised fine-tuning of a small ConvNet on multi-scale batches, augmentation included in the model."""

import random

import torch
from torch import nn
from torch.nn import functional as F


class Augment(nn.Module):
    def __init__(self, brightness=0.2):
        super().__init__()
        self.brightness = brightness
        self.register_buffer("mean", torch.tensor([0.48, 0.46, 0.41]).view(1, 3, 1, 1))
        self.register_buffer("std", torch.tensor([0.23, 0.22, 0.22]).view(1, 3, 1, 1))

    def forward(self, images):
        images = images * random.uniform(1 - self.brightness, 1 + self.brightness)
        return (images - self.mean) / self.std


class ConvNet(nn.Module):
    def __init__(self, num_classes=10):
        super().__init__()
        self.augment = Augment()
        self.stem = nn.Conv2d(3, 16, 3, stride=2, padding=1)
        self.block = nn.Conv2d(16, 16, 3, padding=1, groups=16)
        self.norm = nn.GroupNorm(4, 16)
        self.head = nn.Linear(16, num_classes)

    def forward(self, images):
        x = self.augment(images)
        x = self.stem(x)
        x = F.gelu(self.norm(self.block(x)))
        return self.head(x.mean(dim=(2, 3)))


def labelled_batch(size, batch_size=4):
    decoded = torch.randint(0, 256, (batch_size, 48, 48, 3), dtype=torch.uint8)
    images = decoded.permute(0, 3, 1, 2).float() / 255
    return F.interpolate(images, size=(size, size), mode="bilinear"), torch.randint(0, 10, (batch_size,))


def pseudo_labelled_batch(pool, size, batch_size=4):
    chosen = [random.choice(pool) for _ in range(batch_size)]
    images = torch.stack([image for image, _ in chosen])
    return F.interpolate(images, size=(size, size), mode="bilinear"), torch.tensor([label for _, label in chosen])


def main():
    torch.manual_seed(0)
    random.seed(0)
    model = ConvNet().to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    compiled = torch.compile(model, backend="eager")
    pool = [(torch.rand(3, 48, 48), i % 10) for i in range(20)]
    for step, size in enumerate([24, 32, 24, 40]):
        loss = 0.0
        for images, labels in (labelled_batch(size), pseudo_labelled_batch(pool, size)):
            loss = loss + F.cross_entropy(compiled(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {step} size {size} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
