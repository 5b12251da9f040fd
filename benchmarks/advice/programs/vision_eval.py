"""Evaluates a ConvNeXt-style classifier on numpy images and reports top-1 accuracy with and without flip augmentation."""

import numpy as np
import torch
from torch import nn

CLASSES = 5


class LayerNorm2d(nn.LayerNorm):
    def forward(self, x):
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.dw = nn.Conv2d(dim, dim, 7, padding=3, groups=dim)
        self.norm = LayerNorm2d(dim)
        self.pw1 = nn.Conv2d(dim, 4 * dim, 1)
        self.pw2 = nn.Conv2d(4 * dim, dim, 1)
        self.gamma = nn.Parameter(1e-1 * torch.ones(dim, 1, 1))

    def forward(self, x):
        return x + self.gamma * self.pw2(nn.functional.gelu(self.pw1(self.norm(self.dw(x)))))


class ConvNeXt(nn.Module):
    def __init__(self, dim=16, depth=2):
        super().__init__()
        self.stem = nn.Conv2d(3, dim, 4, stride=4)
        self.blocks = nn.Sequential(*(Block(dim) for _ in range(depth)))
        self.head = nn.Linear(dim, CLASSES)

    def forward(self, x):
        return self.head(self.blocks(self.stem(x)).mean((2, 3)))


class ImageFolderLike:
    """Yields batches of uint8 HWC images, as a cv2 or PIL loader would."""

    def __init__(self, count, batch_size, size=32, seed=0):
        rng = np.random.default_rng(seed)
        self.labels = rng.integers(CLASSES, size=count)
        self.images = rng.integers(0, 256, size=(count, size, size, 3), dtype=np.uint8)
        self.batch_size = batch_size

    def __iter__(self):
        for start in range(0, len(self.labels), self.batch_size):
            rows = slice(start, start + self.batch_size)
            yield self.images[rows], self.labels[rows]


class Preprocess:
    mean = torch.tensor([0.485, 0.456, 0.406])
    std = torch.tensor([0.229, 0.224, 0.225])

    def __call__(self, images):
        pixels = torch.from_numpy(images).float().div(255)
        return ((pixels - self.mean) / self.std).permute(0, 3, 1, 2)


@torch.inference_mode()
def evaluate(model, loader, preprocess, tta=False):
    correct = seen = 0
    confidence = 0.0
    for images, labels in loader:
        x = preprocess(images)
        logits = model(x)
        if tta:
            logits = (logits + model(x.flip(-1))) / 2
        probs = logits.softmax(-1)
        correct += (probs.argmax(-1) == torch.from_numpy(labels)).sum().item()
        confidence += probs.amax(-1).sum().item()
        seen += len(labels)
    return correct / seen, confidence / seen


def main():
    torch.manual_seed(0)
    model = ConvNeXt().eval()
    compiled = torch.compile(model, backend="eager")
    loader = ImageFolderLike(count=43, batch_size=8)
    with torch.inference_mode():
        compiled(torch.zeros(8, 3, 32, 32))
    for tta in (False, True):
        accuracy, confidence = evaluate(compiled, loader, Preprocess(), tta=tta)
        print(f"tta={tta} top1 {accuracy:.3f} confidence {confidence:.4f}")


if __name__ == "__main__":
    main()
