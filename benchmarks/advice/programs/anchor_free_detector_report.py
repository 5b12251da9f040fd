"""Evaluates an anchor-free detector on photographs of several sizes and reports the boxes it keeps."""
import torch
from torch import nn

STRIDES = (4, 8)
CLASSES = {"street": ["car", "bus", "person"], "kitchen": ["cup", "pan", "knife"]}


class Detector(nn.Module):
    def __init__(self, width=12):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, width, 4, 4), nn.ReLU())
        self.down = nn.Sequential(nn.Conv2d(width, width, 3, 2, 1), nn.ReLU())
        self.cls_head = nn.Conv2d(width, 3, 3, padding=1)
        self.box_head = nn.Conv2d(width, 4, 3, padding=1)

    def forward(self, images):
        first = self.stem(images)
        levels = [first, self.down(first)]
        scores = [self.cls_head(f).sigmoid().flatten(2).transpose(1, 2) for f in levels]
        boxes = [self.box_head(f).exp().flatten(2).transpose(1, 2) * s for f, s in zip(levels, STRIDES)]
        return torch.cat(scores, 1), torch.cat(boxes, 1)


def rescale(boxes, image_size, original_size):
    """Map distances in the network's picture to pixels of the original one."""
    ratio_h = original_size[0] / image_size[0]
    ratio_w = original_size[1] / image_size[1]
    return boxes * torch.tensor([ratio_w, ratio_h, ratio_w, ratio_h])


def postprocess(scores, boxes, original_size, domain):
    if domain == "kitchen":
        scores = scores * torch.tensor([1.0, 0.9, 1.1])
    confidence, label = scores[0].max(-1)
    boxes = rescale(boxes[0], (64, 64), original_size)
    area = (boxes[:, 0] + boxes[:, 2]) * (boxes[:, 1] + boxes[:, 3])
    confidence = confidence * (area > 4).float()
    keep = confidence > confidence.mean() * 1.05
    found = torch.cat([boxes, confidence[:, None], label[:, None]], 1)
    return found[keep]


torch.manual_seed(1)
detector = torch.compile(Detector().eval(), backend="eager")
select = torch.compile(postprocess, backend="eager")

photographs = [
    ("street", (480, 640)),
    ("street", (720, 1280)),
    ("street", (600, 800)),
    ("street", (375, 500)),
    ("kitchen", (1080, 1920)),
    ("kitchen", (500, 333)),
]
with torch.no_grad():
    for number, (domain, size) in enumerate(photographs):
        picture = torch.rand(1, 3, 64, 64)
        scores, boxes = detector(picture)
        kept = select(scores, boxes, size, domain)
        names = {CLASSES[domain][int(index)] for index in kept[:, 5].tolist()}
        print(number, len(kept), f"{kept[:, 4].mean():.3f}", f"{kept[:, :4].mean():.2f}", sorted(names))
