"""Road-scene segmentation behind a fixed-latency service: warm up first, then no compilation is allowed any more."""

from collections import Counter

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

CLASSES = ("road", "sidewalk", "car", "sky")


class ConvBlock(nn.Sequential):
    def __init__(self, inputs, outputs, stride=1):
        super().__init__(nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU())


class SmallUNet(nn.Module):
    def __init__(self, width=8, classes=len(CLASSES)):
        super().__init__()
        self.enter = ConvBlock(3, width)
        self.down = ConvBlock(width, 2 * width, stride=2)
        self.bottom = ConvBlock(2 * width, 4 * width, stride=2)
        self.merge2 = ConvBlock(6 * width, 2 * width)
        self.merge1 = ConvBlock(3 * width, width)
        self.head = nn.Conv2d(width, classes, 1)

    def forward(self, images):
        images = (images.float() / 255.0 - 0.5) / 0.25
        x1 = self.enter(images)
        x2 = self.down(x1)
        x3 = F.interpolate(self.bottom(x2), scale_factor=2, mode="nearest")
        x2 = F.interpolate(self.merge2(torch.cat([x2, x3], dim=1)), scale_factor=2, mode="nearest")
        return self.head(self.merge1(torch.cat([x1, x2], dim=1))).argmax(dim=1)


class Segmenter:
    def __init__(self, model, batch, height, width):
        self.model = torch.compile(model.eval(), backend="eager")
        self.batch, self.height, self.width = batch, height, width

    @torch.inference_mode()
    def warmup(self):
        for _ in range(2):
            self.model(torch.zeros(self.batch, 3, self.height, self.width, dtype=torch.uint8))
        torch.compiler.set_stance("fail_on_recompile")
        return self

    @torch.inference_mode()
    def __call__(self, frames):
        padded = list(frames) + [np.zeros_like(frames[0])] * (self.batch - len(frames))
        images = torch.from_numpy(np.stack(padded)).permute(0, 3, 1, 2)
        return self.model(images)[: len(frames)]


def camera(seed, frames, height, width):
    rng = np.random.default_rng(seed)
    for _ in range(frames):
        frame = rng.integers(0, 256, (height, width, 3), dtype=np.uint8)
        frame[: height // 3] //= 2
        yield frame


def main():
    torch.manual_seed(0)
    service = Segmenter(SmallUNet(), 4, 32, 48).warmup()
    for seed, frames in enumerate((1, 3, 2, 4)):
        labels = service(list(camera(seed, frames, 32, 48)))
        counts = Counter(labels.flatten().tolist())
        shares = " ".join(f"{name} {counts[i] / labels.numel():.2f}" for i, name in enumerate(CLASSES))
        print(f"request {seed} frames {frames}: {shares}")


if __name__ == "__main__":
    main()
