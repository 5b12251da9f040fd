"""Samples the two-dimensional Ising model with checkerboard Metropolis sweeps."""

import torch


def checkerboard(size):
    rows = torch.arange(size).unsqueeze(1)
    columns = torch.arange(size).unsqueeze(0)
    return (rows + columns) % 2 == 0


class IsingSampler:
    def __init__(self, size, coupling=1.0, seed=0):
        self.coupling = coupling
        self.even = checkerboard(size)
        self.generator = torch.Generator().manual_seed(seed)
        self.spins = torch.ones(size, size)

    def neighbours(self, spins):
        return spins.roll(1, 0) + spins.roll(-1, 0) + spins.roll(1, 1) + spins.roll(-1, 1)

    def half_sweep(self, spins, mask, beta):
        delta = 2.0 * self.coupling * spins * self.neighbours(spins)
        uniform = torch.rand(spins.shape, generator=self.generator)
        accept = (uniform < torch.exp(-beta * delta)) & mask
        return torch.where(accept, -spins, spins)

    @torch.compile(backend="eager", fullgraph=True)
    def sweep(self, spins, beta):
        spins = self.half_sweep(spins, self.even, beta)
        return self.half_sweep(spins, ~self.even, beta)

    def run(self, temperature, sweeps):
        beta = torch.tensor(1.0 / temperature)
        samples = []
        for _ in range(sweeps):
            self.spins = self.sweep(self.spins, beta)
            samples.append(self.spins.mean())
        return torch.stack(samples)


def main():
    sampler = IsingSampler(size=16, seed=3)
    for temperature in (1.5, 2.2, 3.5):
        magnetisation = sampler.run(temperature, sweeps=20)
        print(f"T {temperature:.1f}: <m> {magnetisation.mean().item():.4f} chi {magnetisation.var().item():.4f}")


if __name__ == "__main__":
    main()
