"""Leapfrog integration of a star cluster; escaped stars are dropped and the time step follows the largest acceleration."""
import time

import torch


class Diverged(RuntimeError):
    pass


class Cluster:
    def __init__(self, stars, softening=0.2):
        self.position = torch.randn(stars, 3)
        self.velocity = 0.3 * torch.randn(stars, 3)
        self.mass = torch.rand(stars) / stars
        self.softening = softening

    def drop_escaped(self, radius):
        keep = self.position.norm(dim=1) < radius
        self.position, self.velocity, self.mass = self.position[keep], self.velocity[keep], self.mass[keep]
        return int((~keep).sum())


def acceleration(position, mass, softening):
    delta = position[None] - position[:, None]
    distance = (delta.pow(2).sum(-1) + softening**2).pow(-1.5)
    return (delta * (mass[None, :] * distance)[..., None]).sum(1)


@torch.compile(backend="eager")
def leapfrog(position, velocity, mass, softening, dt):
    velocity = velocity + 0.5 * dt * acceleration(position, mass, softening)
    position = position + dt * velocity
    after = acceleration(position, mass, softening)
    velocity = velocity + 0.5 * dt * after
    if torch.isnan(position).any():
        raise Diverged("a star left the universe")
    return position, velocity, after.norm(dim=1).max()


@torch.compile(backend="eager")
def energy(position, velocity, mass, softening):
    started = time.perf_counter()
    kinetic = 0.5 * (mass * velocity.pow(2).sum(1)).sum()
    distance = (torch.cdist(position, position).pow(2) + softening**2).sqrt()
    potential = -0.5 * (mass[None] * mass[:, None] / distance).sum()
    elapsed = time.perf_counter() - started
    return kinetic, potential, elapsed


def main():
    torch.manual_seed(14)
    cluster = Cluster(48)
    dt, spent = 0.05, 0.0
    for step in range(12):
        cluster.position, cluster.velocity, largest = leapfrog(
            cluster.position, cluster.velocity, cluster.mass, cluster.softening, dt
        )
        dt = 0.02 / (0.1 + largest.item())
        if step % 4 == 3:
            escaped = cluster.drop_escaped(2.6)
            kinetic, potential, elapsed = energy(cluster.position, cluster.velocity, cluster.mass, cluster.softening)
            spent += elapsed
            print(f"step {step} stars {len(cluster.mass)} (-{escaped}) kinetic {kinetic:.3f} potential {potential:.3f}")
    assert spent >= 0


if __name__ == "__main__":
    main()
