"""Message passing on molecule-like graphs of different size; edges below a cutoff are found inside the compiled model."""

from dataclasses import dataclass

import torch
import torch.nn as nn


@dataclass
class Molecule:
    name: str
    pos: torch.Tensor
    kind: torch.Tensor
    energy: float


class Interaction(nn.Module):
    def __init__(self, width, cutoff):
        super().__init__()
        self.cutoff = cutoff
        self.filter = nn.Sequential(nn.Linear(8, width), nn.SiLU(), nn.Linear(width, width))
        self.update = nn.Linear(width, width)
        self.register_buffer("centers", torch.linspace(0, cutoff, 8))

    def forward(self, h, pos):
        dist = (pos[:, None] - pos[None]).square().sum(-1).add(1e-6).sqrt()
        close = (dist < self.cutoff).fill_diagonal_(False)
        src, dst = close.nonzero(as_tuple=True)
        basis = torch.exp(-(dist[src, dst, None] - self.centers).square())
        message = h[src] * self.filter(basis)
        return h + self.update(torch.zeros_like(h).index_add(0, dst, message))


class Net(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.embed = nn.Embedding(4, width)
        self.layers = nn.ModuleList(Interaction(width, cutoff) for cutoff in (2.0, 3.0))
        self.readout = nn.Linear(width, 1)

    def forward(self, molecule):
        h = self.embed(molecule.kind)
        for layer in self.layers:
            h = layer(h, molecule.pos)
        energy = self.readout(h).sum()
        if molecule.name.startswith("ion"):
            energy = energy + 1.0
        return (energy - molecule.energy) ** 2


def molecules():
    gen = torch.Generator().manual_seed(0)
    for index, size in enumerate([6, 7, 9, 8, 6, 10]):
        pos = torch.randn(size, 3, generator=gen)
        kind = torch.randint(0, 4, (size,), generator=gen)
        label = ("ion" if index % 3 == 2 else "mol") + str(index)
        yield Molecule(label, pos, kind, float(kind.sum()) / 4)


def main():
    torch.manual_seed(0)
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    compiled = torch.compile(net, backend="aot_eager")
    total = 0.0
    for molecule in molecules():
        loss = compiled(molecule)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
    print(f"mean squared error {total / 6:.2f}")


if __name__ == "__main__":
    main()
