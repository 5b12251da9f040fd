"""Segmentation of lesions in small CT volumes: training with dropout, validation after each epoch."""

import torch
from torch import nn


class DiceLoss(torch.autograd.Function):
    """Soft Dice loss with a backward of its own."""

    @staticmethod
    def forward(ctx, prob, target):
        overlap = (prob * target).sum()
        size = prob.sum() + target.sum() + 1e-3
        ctx.save_for_backward(target, overlap, size)
        return 1 - 2 * overlap / size

    @staticmethod
    def backward(ctx, grad):
        target, overlap, size = ctx.saved_tensors
        return grad * (-2 * target / size + 2 * overlap / size.square()), None


class SegNet(nn.Module):
    def __init__(self, width=4):
        super().__init__()
        self.enc = nn.Sequential(nn.Conv3d(1, width, 3, padding=1), nn.BatchNorm3d(width), nn.ReLU())
        self.drop = nn.Dropout3d(0.0)
        self.down = nn.Conv3d(width, width, 2, stride=2)
        self.up = nn.ConvTranspose3d(width, width, 2, stride=2)
        self.out = nn.Conv3d(width, 1, 1)

    def forward(self, volume):
        fine = self.enc(volume)
        coarse = self.up(self.drop(self.down(fine)).relu())
        return self.out(fine + coarse).sigmoid()


def make_volumes(count, seed):
    gen = torch.Generator().manual_seed(seed)
    axis = torch.linspace(-1, 1, 12)
    grid = torch.stack(torch.meshgrid(axis, axis, axis, indexing="ij"))
    for _ in range(count):
        centre = torch.rand(3, 1, 1, 1, generator=gen) - 0.5
        lesion = ((grid - centre).square().sum(0) < 0.15).float()[None, None]
        yield lesion + 0.3 * torch.randn(lesion.shape, generator=gen), lesion


def train_epoch(model, optimizer, volumes):
    model.train()
    for volume, lesion in volumes:
        loss = DiceLoss.apply(model(volume), lesion)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


@torch.no_grad()
def validate(model, volumes):
    model.eval()
    scores = []
    for volume, lesion in volumes:
        mask = (model(volume) > 0.5).float()
        scores.append(2 * (mask * lesion).sum() / (mask.sum() + lesion.sum()))
    return torch.stack(scores).mean().item()


def main():
    torch.manual_seed(0)
    model = torch.compile(SegNet(), backend="aot_eager")
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    training, validation = list(make_volumes(6, 1)), list(make_volumes(2, 2))
    for epoch in range(3):
        loss = train_epoch(model, optimizer, training)
        print(f"epoch {epoch}: loss {loss:.2f}, dice {validate(model, validation):.2f}")


if __name__ == "__main__":
    main()
