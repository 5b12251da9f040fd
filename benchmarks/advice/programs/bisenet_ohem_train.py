"""Trains a two-branch segmentation net on synthetic street scenes with an OHEM cross entropy and an auxiliary head."""

import torch
import torch.nn.functional as F
from torch import nn

IGNORE = 255


class SpatialPath(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(3, width, 3, 2, 1), nn.ReLU(), nn.Conv2d(width, width, 3, 2, 1), nn.ReLU())

    def forward(self, x):
        return self.layers(x)


class BiSeNet(nn.Module):
    def __init__(self, classes=5, width=12):
        super().__init__()
        self.spatial = SpatialPath(width)
        self.context = nn.Sequential(nn.Conv2d(3, width, 7, 8, 3), nn.ReLU(), nn.Conv2d(width, width, 3, 1, 1), nn.ReLU())
        self.fuse = nn.Conv2d(2 * width, width, 1)
        self.head = nn.Conv2d(width, classes, 1)
        self.aux = nn.Conv2d(width, classes, 1)

    def forward(self, image):
        size = image.shape[-2:]
        detail = self.spatial(image)
        context = self.context(image)
        context_up = F.interpolate(context, size=detail.shape[-2:], mode="bilinear", align_corners=False)
        fused = F.relu(self.fuse(torch.cat((detail, context_up), 1)))
        main = F.interpolate(self.head(fused), size=size, mode="bilinear", align_corners=False)
        aux = F.interpolate(self.aux(context), size=size, mode="bilinear", align_corners=False)
        return main, aux


class OhemLoss(nn.Module):
    def __init__(self, thresh=1.55, keep_ratio=0.25):
        super().__init__()
        self.thresh = thresh
        self.keep_ratio = keep_ratio

    def forward(self, logits, target):
        pixel_loss = F.cross_entropy(logits, target, ignore_index=IGNORE, reduction="none").view(-1)
        pixel_loss, _ = torch.sort(pixel_loss, descending=True)
        n_min = int(pixel_loss.numel() * self.keep_ratio)
        if pixel_loss[n_min] > self.thresh:
            hard = pixel_loss[pixel_loss > self.thresh]
        else:
            hard = pixel_loss[:n_min]
        return hard.mean()


def street_scene(batch, size):
    image = torch.rand(batch, 3, size, size)
    rows = torch.arange(size).view(1, size, 1) * 5 // size
    target = rows.expand(batch, size, size).clone()
    image += target.unsqueeze(1) * 0.3
    target[:, -1] = IGNORE
    return image, target


def main():
    torch.manual_seed(0)
    model = BiSeNet()
    criterion = torch.compile(OhemLoss(), backend="eager")
    net = torch.compile(model, backend="aot_eager")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    for step in range(12):
        image, target = street_scene(2, 48)
        main_logits, aux_logits = net(image)
        loss = criterion(main_logits, target) + 0.4 * criterion(aux_logits, target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 4 == 3:
            print(f"step {step + 1:2d} loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
