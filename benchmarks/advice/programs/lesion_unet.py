"""Trains a small segmentation network on CT-like slices and validates it after each epoch."""

import torch
from torch import nn

PATCH = 32


def scan(index, size):
    """A slice with one bright lesion, and its mask."""
    generator = torch.Generator().manual_seed(index)
    centre = 8 + 16 * torch.rand(2, generator=generator)
    axis = torch.arange(size).float()
    distance = ((axis[:, None] - centre[0]) ** 2 + (axis[None] - centre[1]) ** 2).sqrt()
    mask = (distance < 6).float()
    return 0.8 * mask + 0.3 * torch.randn(size, size, generator=generator), mask


def padded(image):
    """Every slice is padded to the size of a patch."""
    gap = PATCH - image.shape[-1]
    return nn.functional.pad(image, (0, gap, 0, gap))


def load(indices):
    sizes = [28 + index % 5 for index in indices]
    pairs = [scan(index, size) for index, size in zip(indices, sizes)]
    images = torch.stack([padded(image) for image, _ in pairs])
    masks = torch.stack([padded(mask) for _, mask in pairs])
    return images[:, None], masks[:, None]


class LesionNet(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.down = nn.Sequential(nn.Conv2d(1, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU())
        self.deep = nn.Sequential(nn.MaxPool2d(2), nn.Conv2d(width, width, 3, padding=1), nn.ReLU(), nn.Dropout2d(0.2))
        self.up = nn.ConvTranspose2d(width, width, 2, stride=2)
        self.head = nn.Conv2d(2 * width, 1, 1)

    def forward(self, x):
        skip = self.down(x)
        return self.head(torch.cat([skip, self.up(self.deep(skip))], 1))


def dice(logits, mask):
    guess = (logits > 0).float()
    return 2 * (guess * mask).sum() / (guess.sum() + mask.sum() + 1e-6)


def main():
    torch.manual_seed(0)
    net = LesionNet()
    model = torch.compile(net, backend="eager")
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
    for epoch in range(4):
        model.train()
        for batch in range(3):
            images, masks = load(range(8 * batch, 8 * batch + 8))
            loss = nn.functional.binary_cross_entropy_with_logits(model(images), masks)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            images, masks = load(range(100, 108))
            score = dice(model(images), masks)
        print(f"epoch {epoch}: loss {loss.item():.3f}, dice {score.item():.2f}")


if __name__ == "__main__":
    main()
