"""Point cloud network that pools points into voxels between two message passing layers."""

import torch
from torch import nn


class EdgeConv(nn.Module):
    def __init__(self, in_dim, out_dim, k):
        super().__init__()
        self.k = k
        self.mlp = nn.Sequential(nn.Linear(2 * in_dim, out_dim), nn.ReLU(), nn.Linear(out_dim, out_dim))

    def forward(self, x, pos):
        distances = (pos.unsqueeze(1) - pos.unsqueeze(0)).pow(2).sum(dim=-1)
        neighbors = distances.topk(self.k, largest=False).indices
        center = x.unsqueeze(1).expand(-1, self.k, -1)
        messages = self.mlp(torch.cat([center, x[neighbors] - center], dim=-1))
        return messages.amax(dim=1)


class VoxelPool(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.size = size

    def forward(self, x, pos):
        cell = (pos / self.size).floor().long()
        cells, cluster = torch.unique(cell, dim=0, return_inverse=True)
        count = torch.zeros(len(cells)).index_add(0, cluster, torch.ones(len(pos)))
        x = torch.zeros(len(cells), x.size(1)).index_add(0, cluster, x) / count.unsqueeze(-1)
        pos = torch.zeros(len(cells), 3).index_add(0, cluster, pos) / count.unsqueeze(-1)
        return x, pos


class PointNet(nn.Module):
    def __init__(self, num_classes=4):
        super().__init__()
        self.conv1 = EdgeConv(3, 16, k=8)
        self.pool = VoxelPool(size=0.5)
        self.conv2 = EdgeConv(16, 32, k=4)
        self.head = nn.Linear(32, num_classes)

    def forward(self, pos):
        x = self.conv1(pos, pos)
        x, pos = self.pool(x, pos)
        x = self.conv2(x, pos)
        return self.head(x.amax(dim=0))


def main():
    torch.manual_seed(0)
    model = torch.compile(PointNet().eval(), backend="eager")
    clouds = [torch.randn(256, 3) * scale for scale in (1.0, 0.8, 1.2, 0.6)]
    with torch.no_grad():
        for cloud in clouds:
            logits = model(cloud)
            print(" ".join(f"{value:.4f}" for value in logits.tolist()))


if __name__ == "__main__":
    main()
