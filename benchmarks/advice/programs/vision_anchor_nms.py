"""One-stage detector whose forward decodes boxes and applies greedy non-maximum suppression."""

import torch
from torch import nn


def box_iou(box, boxes):
    top_left = torch.maximum(box[:2], boxes[:, :2])
    bottom_right = torch.minimum(box[2:], boxes[:, 2:])
    inter = (bottom_right - top_left).clamp(min=0).prod(dim=1)
    area = (box[2:] - box[:2]).prod()
    areas = (boxes[:, 2:] - boxes[:, :2]).prod(dim=1)
    return inter / (area + areas - inter)


def nms(boxes, scores, iou_threshold):
    order = scores.argsort(descending=True)
    keep = []
    while order.numel() > 0:
        best = order[0]
        keep.append(best)
        overlap = box_iou(boxes[best], boxes[order[1:]])
        order = order[1:][overlap <= iou_threshold]
    return torch.stack(keep)


class Detector(nn.Module):
    def __init__(self, stride=8, iou_threshold=0.3):
        super().__init__()
        self.stride = stride
        self.iou_threshold = iou_threshold
        self.backbone = nn.Sequential(
            nn.Conv2d(3, 16, 3, stride=4, padding=1), nn.ReLU(), nn.Conv2d(16, 32, 3, stride=2, padding=1), nn.ReLU()
        )
        self.score = nn.Conv2d(32, 1, 1)
        self.size = nn.Conv2d(32, 2, 1)

    def forward(self, images):
        features = self.backbone(images)
        scores = self.score(features).flatten().sigmoid()
        height, width = features.shape[-2:]
        ys, xs = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
        centers = (torch.stack([xs, ys], dim=-1).view(-1, 2) + 0.5) * self.stride
        half = self.size(features).exp().view(2, -1).t() * self.stride
        boxes = torch.cat([centers - half, centers + half], dim=1)
        keep = nms(boxes, scores, self.iou_threshold)
        return boxes[keep], scores[keep]


def main():
    torch.manual_seed(0)
    model = Detector().eval()
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    with torch.inference_mode():
        for _ in range(2):
            boxes, scores = compiled(torch.rand(1, 3, 64, 64))
            print(f"{len(boxes)} boxes, best {scores[0].item():.4f} at {boxes[0].sum().item():.4f}")


if __name__ == "__main__":
    main()
