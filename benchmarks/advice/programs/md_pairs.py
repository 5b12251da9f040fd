"""Lennard-Jones molecular dynamics with a cutoff; the force is compiled as one graph."""

import torch

BOX = 6.0
CUTOFF = 2.5
MASS = 1.0


def lattice(side):
    """Atoms on a cubic lattice."""
    axis = (torch.arange(side, dtype=torch.float64) + 0.5) * (BOX / side)
    return torch.stack(torch.meshgrid(axis, axis, axis, indexing="ij"), -1).reshape(-1, 3)


def displacements(positions):
    """All pair vectors under the minimum image convention."""
    delta = positions[:, None] - positions[None]
    return delta - BOX * torch.round(delta / BOX)


@torch.compile(fullgraph=True)
def forces(positions):
    delta = displacements(positions)
    r2 = (delta**2).sum(-1)
    near = torch.triu(r2 < CUTOFF**2, diagonal=1)
    i, j = torch.nonzero(near, as_tuple=True)
    if i.numel() == 0:
        return torch.zeros_like(positions), positions.new_zeros(())
    pair = delta[i, j]
    inv6 = r2[i, j].reciprocal() ** 3
    magnitude = 24 * (2 * inv6**2 - inv6) / r2[i, j]
    push = magnitude[:, None] * pair
    total = torch.zeros_like(positions).index_add(0, i, push).index_add(0, j, -push)
    energy = (4 * (inv6**2 - inv6)).sum()
    return total, energy


class Verlet:
    """Velocity Verlet integrator."""

    def __init__(self, positions, velocities, dt):
        self.positions = positions
        self.velocities = velocities
        self.dt = dt
        self.force, self.potential = forces(positions)

    def step(self):
        half = self.velocities + 0.5 * self.dt * self.force / MASS
        self.positions = (self.positions + self.dt * half) % BOX
        self.force, self.potential = forces(self.positions)
        self.velocities = half + 0.5 * self.dt * self.force / MASS

    @property
    def kinetic(self):
        return 0.5 * MASS * (self.velocities**2).sum()


def main():
    torch.manual_seed(1)
    positions = lattice(4)
    velocities = 0.5 * torch.randn_like(positions)
    velocities -= velocities.mean(0)
    system = Verlet(positions, velocities, dt=0.002)
    for step in range(1, 21):
        system.step()
        if step % 5 == 0:
            total = system.kinetic + system.potential
            print(f"{step:3d}  potential {system.potential:.4f}  total {total:.4f}")


if __name__ == "__main__":
    main()
