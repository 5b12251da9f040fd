"""A square of cloth in gusty wind: springs on a grid, semi-implicit Euler, one compiled step per frame."""

import math

import torch

SIDE = 12
SUBSTEPS = 2


def grid_springs(side):
    """Pairs of neighbours: structural and shear springs."""
    pairs = []
    for row in range(side):
        for col in range(side):
            here = row * side + col
            if col + 1 < side:
                pairs.append((here, here + 1))
            if row + 1 < side:
                pairs.append((here, here + side))
            if row + 1 < side and col + 1 < side:
                pairs.append((here, here + side + 1))
    return torch.tensor(pairs)


class Cloth:
    def __init__(self, side, stiffness=80.0, dt=0.01):
        axis = torch.linspace(0.0, 1.0, side)
        y, x = torch.meshgrid(axis, axis, indexing="ij")
        self.pos = torch.stack([x.flatten(), torch.zeros(side * side), -y.flatten()], dim=1)
        self.vel = torch.zeros_like(self.pos)
        self.springs = grid_springs(side)
        self.rest = (self.pos[self.springs[:, 0]] - self.pos[self.springs[:, 1]]).norm(dim=1)
        self.pinned = torch.zeros(side * side, 1, dtype=torch.bool)
        self.pinned[0] = self.pinned[side - 1] = True
        self.gravity = torch.tensor([0.0, 0.0, -9.81])
        self.stiffness = stiffness
        self.dt = dt
        self.frame = 0

    def forces(self):
        a, b = self.springs[:, 0], self.springs[:, 1]
        d = self.pos[b] - self.pos[a]
        length = d.norm(dim=1, keepdim=True).clamp_min(1e-6)
        pull = self.stiffness * (length - self.rest[:, None]) * d / length
        total = torch.zeros_like(self.pos)
        total = total.index_add(0, a, pull).index_add(0, b, -pull)
        return total + 0.02 * self.gravity

    @torch.compile
    def step(self):
        gust = 0.05 * math.sin(0.3 * self.frame) + 0.08
        for _ in range(SUBSTEPS):
            acc = self.forces() / 0.02
            acc = acc + torch.stack([torch.zeros(()), torch.full((), gust), torch.zeros(())]) / 0.02
            self.vel = torch.where(self.pinned, 0.0, 0.995 * (self.vel + self.dt / SUBSTEPS * acc))
            self.pos = self.pos + self.dt / SUBSTEPS * self.vel
        self.frame += 1
        return 0.5 * 0.02 * self.vel.square().sum()


def main():
    cloth = Cloth(SIDE)
    with torch.no_grad():
        kinetic = [cloth.step() for _ in range(6)]
    print("frames", int(cloth.frame))
    print("kinetic", [f"{float(k):.4f}" for k in kinetic])
    print(f"lowest {cloth.pos[:, 2].min():.4f} drift {cloth.pos[:, 1].mean():.4f}")


if __name__ == "__main__":
    main()
