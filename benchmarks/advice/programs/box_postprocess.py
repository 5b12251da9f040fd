"""Post-processing of an anchor-free detector: score threshold, box decoding and a score decay over overlaps (soft NMS)."""

from dataclasses import dataclass

import torch
from torch import nn


@dataclass(frozen=True)
class PostprocessConfig:
    score_threshold: float = 0.6
    sigma: float = 0.5
    top: int = 5
    stride: int = 8


class Detector(nn.Module):
    def __init__(self, channels=8):
        super().__init__()
        self.stem = nn.Conv2d(3, channels, 3, stride=8, padding=1)
        self.score = nn.Conv2d(channels, 1, 1)
        self.sides = nn.Conv2d(channels, 4, 1)

    def forward(self, image):
        h = torch.relu(self.stem(image))
        return self.score(h).sigmoid().flatten(), self.sides(h).exp().flatten(2)[0].T


def cell_centers(height, width, stride):
    rows, columns = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
    return (torch.stack([columns, rows], dim=-1).reshape(-1, 2) + 0.5) * stride


def pairwise_iou(boxes):
    top_left = torch.maximum(boxes[:, None, :2], boxes[None, :, :2])
    bottom_right = torch.minimum(boxes[:, None, 2:], boxes[None, :, 2:])
    overlap = (bottom_right - top_left).clamp(min=0).prod(-1)
    area = (boxes[:, 2:] - boxes[:, :2]).prod(-1)
    return overlap / (area[:, None] + area[None, :] - overlap).clamp(min=1e-6)


class PostProcessor:
    def __init__(self, config):
        self.config = config

    def decode(self, sides, centers):
        distance = sides * self.config.stride
        return torch.cat([centers - distance[:, :2], centers + distance[:, 2:]], dim=1)

    def __call__(self, scores, sides, centers):
        boxes = self.decode(sides, centers)
        keep = scores > self.config.score_threshold
        if not keep.any():
            return boxes[:0], scores[:0]
        boxes, scores = boxes[keep], scores[keep]
        iou = pairwise_iou(boxes)
        better = scores[None, :] > scores[:, None]
        decay = torch.where(better, torch.exp(-iou.square() / self.config.sigma), 1.0).amin(dim=1)
        return boxes, scores * decay


def serve(images, config):
    torch.manual_seed(0)
    model = Detector().eval()
    postprocess = torch.compile(PostProcessor(config), backend="eager", fullgraph=True)
    centers = cell_centers(4, 4, config.stride)
    with torch.inference_mode():
        for name, image in images:
            scores, sides = model(image)
            boxes, final = postprocess(scores, sides, centers)
            best = final.sort(descending=True).values[: config.top]
            print(name, " ".join(f"{value:.3f}" for value in best.tolist()))


def main():
    rng = torch.Generator().manual_seed(4)
    images = [(f"frame{i}", torch.randn(1, 3, 32, 32, generator=rng) * (1 + i)) for i in range(4)]
    serve(images, PostprocessConfig())


if __name__ == "__main__":
    main()
