"""Extracts features with a residual network of widening stages; every residual block is compiled on its own."""

import torch
import torch.nn.functional as F
from torch import nn

WIDTHS = (8, 12, 16, 20, 24, 28, 32, 36, 40, 44)


class SqueezeExcite(nn.Module):
    def __init__(self, channels, reduction=4):
        super().__init__()
        self.down = nn.Conv2d(channels, channels // reduction, 1)
        self.up = nn.Conv2d(channels // reduction, channels, 1)

    def forward(self, x):
        weights = x.mean((2, 3), keepdim=True)
        return x * torch.sigmoid(self.up(F.relu(self.down(weights))))


class Bottleneck(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.se = SqueezeExcite(outputs)
        self.shortcut = nn.Conv2d(inputs, outputs, 1, bias=False)

    def forward(self, x):
        out = F.relu(self.bn1(self.conv1(x)))
        out = self.se(self.bn2(self.conv2(out)))
        return F.relu(out + self.shortcut(x))


class FeatureNet(nn.Module):
    def __init__(self, widths=WIDTHS, embedding=16):
        super().__init__()
        self.stem = nn.Conv2d(3, widths[0], 3, padding=1)
        self.blocks = nn.ModuleList(Bottleneck(a, b) for a, b in zip(widths[:-1], widths[1:]))
        self.embed = nn.Linear(widths[-1], embedding)

    def forward(self, images):
        x = self.stem(images)
        for block in self.blocks:
            x = block(x)
        return F.normalize(self.embed(x.mean((2, 3))), dim=-1)


def build(compiled=True):
    torch.manual_seed(0)
    model = FeatureNet().eval()
    if compiled:
        for index, block in enumerate(model.blocks):
            model.blocks[index] = torch.compile(block, backend="eager")
    return model


@torch.no_grad()
def main():
    model = build()
    gallery = torch.randn(6, 3, 16, 16)
    features = torch.cat([model(batch) for batch in gallery.split(2)])
    distance = torch.cdist(features, features)
    distance.fill_diagonal_(float("inf"))
    for row, match in enumerate(distance.argmin(dim=1).tolist()):
        print(f"image {row} closest to {match} first features {[round(value, 3) for value in features[row, :3].tolist()]}")


if __name__ == "__main__":
    main()
