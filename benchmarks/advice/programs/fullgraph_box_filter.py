"""A detection head whose box filter is compiled as one graph, with the number of kept boxes captured as a dynamic size."""

import torch
from torch import nn

torch._dynamo.config.capture_dynamic_output_shape_ops = True


class DetectionHead(nn.Module):
    def __init__(self, channels=8, classes=3):
        super().__init__()
        self.cls = nn.Linear(channels, classes)
        self.box = nn.Linear(channels, 4)

    def forward(self, features):
        scores, labels = self.cls(features).softmax(dim=-1).max(dim=-1)
        boxes = self.box(features).sigmoid()
        return boxes, scores, labels


class PostProcess(nn.Module):
    def __init__(self, score_threshold=0.45, image_size=64):
        super().__init__()
        self.score_threshold = score_threshold
        self.register_buffer("image_scale", torch.tensor([image_size] * 4, dtype=torch.float32))

    def forward(self, boxes, scores, labels):
        keep = scores > self.score_threshold
        boxes, scores, labels = boxes[keep], scores[keep], labels[keep]
        if boxes.shape[0] == 0:
            return boxes, scores, labels
        centers, sizes = boxes[:, :2], boxes[:, 2:]
        corners = torch.cat([centers - sizes / 2, centers + sizes / 2], dim=1)
        return (corners * self.image_scale).clamp(min=0), scores, labels


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = DetectionHead()
        self.post_process = PostProcess()

    def forward(self, features):
        return self.post_process(*self.head(features))


def main():
    torch.manual_seed(0)
    detector = torch.compile(Detector().eval(), backend="eager", fullgraph=True)
    with torch.no_grad():
        for _ in range(3):
            boxes, scores, labels = detector(torch.randn(20, 8))
            print(len(boxes), f"{boxes.sum().item():.4f} {scores.sum().item():.4f}", labels.tolist())


if __name__ == "__main__":
    main()
