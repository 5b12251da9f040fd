"""Runs a small anchor-free YOLO head over letterboxed camera frames and prints the boxes that survive NMS."""

import torch
from torch import nn


def conv(c_in, c_out, stride=1):
    return nn.Sequential(nn.Conv2d(c_in, c_out, 3, stride, 1, bias=False), nn.BatchNorm2d(c_out), nn.SiLU())


def make_anchors(feats, strides, offset=0.5):
    points, scale = [], []
    for feat, stride in zip(feats, strides):
        h, w = feat.shape[-2:]
        sy, sx = torch.meshgrid(torch.arange(h) + offset, torch.arange(w) + offset, indexing="ij")
        points.append(torch.stack((sx, sy), -1).view(-1, 2))
        scale.append(torch.full((h * w, 1), float(stride)))
    return torch.cat(points).t(), torch.cat(scale).t()


class Detect(nn.Module):
    strides = (8, 16)

    def __init__(self, nc, channels):
        super().__init__()
        self.nc = nc
        self.shape = None
        self.anchors = torch.empty(0)
        self.scales = torch.empty(0)
        self.box = nn.ModuleList(nn.Conv2d(c, 4, 1) for c in channels)
        self.cls = nn.ModuleList(nn.Conv2d(c, nc, 1) for c in channels)

    def forward(self, feats):
        shape = feats[0].shape
        out = [torch.cat((box(f), cls(f)), 1).flatten(2) for box, cls, f in zip(self.box, self.cls, feats)]
        if self.shape != shape:
            self.anchors, self.scales = make_anchors(feats, self.strides)
            self.shape = shape
        box, cls = torch.cat(out, 2).split((4, self.nc), 1)
        lt, rb = box.exp().chunk(2, 1)
        xyxy = torch.cat((self.anchors - lt, self.anchors + rb), 1) * self.scales
        return torch.cat((xyxy, cls.sigmoid()), 1).transpose(1, 2)


class TinyYolo(nn.Module):
    def __init__(self, nc=3):
        super().__init__()
        self.stem = nn.Sequential(conv(3, 8, 2), conv(8, 16, 2), conv(16, 16, 2))
        self.down = conv(16, 32, 2)
        self.head = Detect(nc, (16, 32))

    def forward(self, images):
        p3 = self.stem(images)
        return self.head([p3, self.down(p3)])


def iou(box, boxes):
    lt = torch.maximum(box[:2], boxes[:, :2])
    rb = torch.minimum(box[2:4], boxes[:, 2:4])
    inter = (rb - lt).clamp(min=0).prod(1)
    area = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    return inter / ((box[2] - box[0]) * (box[3] - box[1]) + area - inter)


def nms(boxes, scores, threshold=0.45):
    keep, order = [], scores.argsort(descending=True, stable=True)
    while len(order):
        keep.append(order[0])
        order = order[1:][iou(boxes[order[0]], boxes[order[1:]]) < threshold]
    return torch.stack(keep)


def letterbox(frame, size=(64, 96)):
    h, w = frame.shape[-2:]
    canvas = torch.full((3, *size), 0.447)
    top, left = (size[0] - h) // 2, (size[1] - w) // 2
    canvas[:, top : top + h, left : left + w] = frame
    return canvas


def main():
    torch.manual_seed(3)
    model = TinyYolo().eval()
    detector = torch.compile(model, backend="eager")
    frames = [torch.rand(3, 48 + 4 * i, 80 + 4 * i) for i in range(4)]
    for number, frame in enumerate(frames):
        with torch.no_grad():
            prediction = detector(letterbox(frame).unsqueeze(0))[0]
        scores, labels = prediction[:, 4:].max(1)
        best = scores.topk(20).indices
        keep = nms(prediction[best, :4], scores[best])
        print(f"frame {number}: {len(keep)} boxes, classes {labels[best][keep].bincount(minlength=3).tolist()}")


if __name__ == "__main__":
    main()
