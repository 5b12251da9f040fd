"""A D2Q9 lattice Boltzmann flow past a cylinder, one compiled step of collision, bounce and streaming."""

import torch

WIDTH, HEIGHT = 48, 24
VELOCITIES = torch.tensor([(0, 0), (1, 0), (0, 1), (-1, 0), (0, -1), (1, 1), (-1, 1), (-1, -1), (1, -1)])
WEIGHTS = torch.tensor([4 / 9] + [1 / 9] * 4 + [1 / 36] * 4)
OPPOSITE = [0, 3, 4, 1, 2, 7, 8, 5, 6]
SHIFTS = [tuple(v) for v in VELOCITIES.tolist()]


def equilibrium(density, velocity):
    along = torch.einsum("qd,dxy->qxy", VELOCITIES.float(), velocity)
    speed = (velocity**2).sum(0)
    return WEIGHTS[:, None, None] * density * (1 + 3 * along + 4.5 * along**2 - 1.5 * speed)


@torch.compile
def step(f, solid, omega, inflow):
    density = f.sum(0)
    velocity = torch.einsum("qd,qxy->dxy", VELOCITIES.float(), f) / density
    after = f + omega * (equilibrium(density, velocity) - f)
    after = torch.where(solid, f[OPPOSITE], after)
    moved = torch.stack([after[q].roll(shift, (0, 1)) for q, shift in enumerate(SHIFTS)])
    edge = equilibrium(torch.ones_like(density[:1]), inflow.view(2, 1, 1).expand(2, 1, f.shape[2]))
    return torch.cat([edge, moved[:, 1:]], 1), velocity


def cylinder(x, y, radius):
    gx, gy = torch.meshgrid(torch.arange(WIDTH), torch.arange(HEIGHT), indexing="ij")
    return (gx - x) ** 2 + (gy - y) ** 2 < radius**2


def simulate(solid, viscosity, speed, steps):
    omega = torch.tensor(1 / (3 * viscosity + 0.5))
    inflow = torch.tensor([speed, 0.0])
    f = equilibrium(torch.ones(WIDTH, HEIGHT), inflow.view(2, 1, 1).expand(2, WIDTH, HEIGHT))
    for number in range(steps):
        f, velocity = step(f, solid, omega, inflow)
        if number % 20 == 19:
            drag = f[1][solid].sum() - f[3][solid].sum()
            print(f"  {number + 1:3d}: mass {f.sum():.1f}, drag {drag:.2f}, top speed {velocity[0].max():.3f}")
    return f


@torch.no_grad()
def main():
    for viscosity, speed in [(0.05, 0.08), (0.1, 0.06), (0.2, 0.04)]:
        print(f"viscosity {viscosity}, speed {speed}")
        simulate(cylinder(12, 12, 4), viscosity, speed, steps=60)


if __name__ == "__main__":
    main()
