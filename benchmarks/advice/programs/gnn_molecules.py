"""Energy of molecules by a message-passing network: edges beyond a cutoff are dropped, atoms are pooled per molecule."""

import torch
from torch import nn

class MessageLayer(nn.Module):
    def __init__(self, width, tag, stats):
        super().__init__()
        self.tag = tag
        self.stats = stats
        self.message = nn.Linear(2 * width + 1, width)
        self.update = nn.Linear(2 * width, width)

    @torch.compile(backend="eager", dynamic=True)
    def forward(self, nodes, edges, distance):
        source, target = edges
        message = self.message(torch.cat([nodes[source], nodes[target], distance[:, None]], dim=-1)).relu()
        gathered = torch.zeros_like(nodes).index_add_(0, target, message)
        self.stats[self.tag] = gathered.detach().norm()
        return nodes + self.update(torch.cat([nodes, gathered], dim=-1)).tanh()


@torch.compile(backend="eager", dynamic=True)
def neighbours(positions, edges, cutoff):
    distance = (positions[edges[0]] - positions[edges[1]]).norm(dim=-1)
    keep = distance < cutoff
    return edges[:, keep], distance[keep]


@torch.compile(backend="eager")
def pool(energies, molecule):
    count = molecule.max().item() + 1
    return torch.zeros(count).index_add_(0, molecule, energies)


class EnergyNet(nn.Module):
    def __init__(self, width=12, layers=10):
        super().__init__()
        self.embed = nn.Embedding(9, width)
        self.stats = {f"layer{i}": torch.zeros(()) for i in range(layers)}
        self.layers = nn.ModuleList(MessageLayer(width, tag, self.stats) for tag in self.stats)
        self.head = nn.Linear(width, 1)

    def forward(self, species, positions, edges, molecule):
        edges, distance = neighbours(positions, edges, 1.5)
        nodes = self.embed(species)
        for layer in self.layers:
            nodes = layer(nodes, edges, distance)
        return pool(self.head(nodes).squeeze(-1), molecule)


def make_batch(seed, molecules=4, atoms=5):
    gen = torch.Generator().manual_seed(seed)
    total = molecules * atoms
    species = torch.randint(0, 9, (total,), generator=gen)
    positions = torch.randn(total, 3, generator=gen)
    molecule = torch.arange(molecules).repeat_interleave(atoms)
    same = (molecule[:, None] == molecule[None, :]) & ~torch.eye(total, dtype=torch.bool)
    return species, positions, same.nonzero().T.contiguous(), molecule


def main():
    torch.manual_seed(0)
    net = EnergyNet()
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
    for step in range(4):
        species, positions, edges, molecule = make_batch(step)
        energy = net(species, positions, edges, molecule)
        loss = (energy - 1.0).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {step}: loss {loss.item():.4f}")
    print({tag: round(norm.item(), 2) for tag, norm in net.stats.items()})


if __name__ == "__main__":
    main()
