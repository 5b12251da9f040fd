"""Checkerboard Metropolis sampling of the 2-D Ising model over a range of temperatures."""

import math

import torch


class Ising:
    def __init__(self, size, coupling=1.0, seed=0):
        self.size = size
        self.coupling = coupling
        self.rng = torch.Generator().manual_seed(seed)
        self.spins = torch.ones(size, size)
        rows, columns = torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij")
        black = (rows + columns) % 2 == 0
        self.masks = [black, ~black]

    def neighbours(self, spins):
        return spins.roll(1, 0) + spins.roll(-1, 0) + spins.roll(1, 1) + spins.roll(-1, 1)

    @torch.compile(backend="eager", fullgraph=True)
    def half_sweep(self, spins, mask, beta):
        cost = 2 * self.coupling * spins * self.neighbours(spins)
        accept = torch.rand(spins.shape, generator=self.rng) < torch.exp(-beta * cost)
        return torch.where(accept & mask, -spins, spins)

    def energy(self):
        return -self.coupling * (self.spins * self.neighbours(self.spins)).sum().item() / 2

    def run(self, temperature, sweeps, burn_in):
        beta = torch.tensor(1.0 / temperature)
        energies, magnets = [], []
        for sweep in range(sweeps):
            for mask in self.masks:
                self.spins = self.half_sweep(self.spins, mask, beta)
            if sweep >= burn_in:
                energies.append(self.energy() / self.size**2)
                magnets.append(abs(self.spins.mean().item()))
        return sum(energies) / len(energies), sum(magnets) / len(magnets)


def main():
    model = Ising(size=16, seed=3)
    critical = 2 / math.log(1 + math.sqrt(2))
    for temperature in (1.5, 2.0, critical, 3.0):
        energy, magnet = model.run(temperature, sweeps=30, burn_in=10)
        print(f"T={temperature:.3f} energy {energy:.4f} magnetisation {magnet:.4f}")


if __name__ == "__main__":
    main()
