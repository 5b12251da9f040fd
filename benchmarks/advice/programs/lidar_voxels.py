"""Lidar sweeps to voxel features: crop, voxelise with NumPy, pool by scatter, small MLP."""

import numpy as np
import torch
from torch import nn

VOXEL = 0.5


def sweep(points, seed, dtype=np.float32):
    rng = np.random.default_rng(seed)
    cloud = rng.normal(scale=2.0, size=(points, 4))
    cloud[:, 3] = rng.random(points)
    return cloud.astype(dtype)


def crop(points, limit):
    inside = (points[:, :3].abs() < limit).all(dim=1)
    return points * inside[:, None]


def voxelise(points):
    """The voxel of each point, numbered in order of the grid, and how many there are."""
    cells = np.floor(points[:, :3].numpy() / VOXEL).astype(np.int64)
    _, inverse = np.unique(cells, axis=0, return_inverse=True)
    return torch.from_numpy(inverse.reshape(-1))


class VoxelNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.point = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 16))
        self.head = nn.Linear(16, 3)
        self.register_buffer("mean", torch.zeros(4))

    def forward(self, points, limit):
        points = crop(points, limit)
        voxel = voxelise(points)
        features = self.point((points - self.mean).float())
        pooled = torch.zeros(points.shape[0], 16).index_add(0, voxel, features)
        return self.head(pooled).amax(dim=0)


def main():
    torch.manual_seed(0)
    net = VoxelNet().eval()
    model = torch.compile(net, backend="aot_eager")
    # the first recordings were stored in double precision
    recordings = [(400, np.float64), (400, np.float64), (400, np.float32), (520, np.float32), (610, np.float32)]
    with torch.no_grad():
        for number, (count, dtype) in enumerate(recordings):
            cloud = torch.from_numpy(sweep(count, number, dtype))
            scores = model(cloud, 4.0)
            print(number, count, [f"{v:+.3f}" for v in scores.tolist()])


if __name__ == "__main__":
    main()
