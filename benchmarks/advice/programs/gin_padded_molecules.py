"""Regresses a property of random molecules with a GIN over batches padded to a fixed budget of atoms and bonds."""

import numpy as np
import torch
from torch import nn

MAX_GRAPHS, MAX_NODES, MAX_EDGES = 8, 96, 224


class GINLayer(nn.Module):
    def __init__(self, dim, bonds):
        super().__init__()
        self.eps = nn.Parameter(torch.zeros(()))
        self.bond = nn.Embedding(bonds, dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 2 * dim), nn.ReLU(), nn.Linear(2 * dim, dim))

    def forward(self, x, edge_index, edge_type, edge_mask):
        src, dst = edge_index.unbind(0)
        message = torch.relu(x[src] + self.bond(edge_type)) * edge_mask.unsqueeze(1)
        return self.mlp((1 + self.eps) * x + torch.zeros_like(x).index_add(0, dst, message))


class GIN(nn.Module):
    def __init__(self, atoms=6, bonds=3, dim=16, layers=4):
        super().__init__()
        self.atom = nn.Embedding(atoms, dim)
        self.layers = nn.ModuleList(GINLayer(dim, bonds) for _ in range(layers))
        self.readout = nn.Linear(dim, 1)

    def forward(self, batch):
        x = self.atom(batch["atom"])
        for layer in self.layers:
            x = x + layer(x, batch["edge_index"], batch["edge_type"], batch["edge_mask"])
        x = x * batch["node_mask"].unsqueeze(1)
        pooled = x.new_zeros(MAX_GRAPHS, x.shape[1]).index_add(0, batch["graph"], x)
        return self.readout(pooled).squeeze(1)


def random_molecule(rng):
    n = int(rng.integers(5, 11))
    parents = [(i, int(rng.integers(i))) for i in range(1, n)]
    edges = np.array(parents + [(b, a) for a, b in parents]).T
    return rng.integers(6, size=n), edges, rng.integers(3, size=edges.shape[1])


def collate(molecules):
    atom, graph = np.zeros(MAX_NODES, np.int64), np.zeros(MAX_NODES, np.int64)
    edge_index, edge_type = np.zeros((2, MAX_EDGES), np.int64), np.zeros(MAX_EDGES, np.int64)
    node_mask, edge_mask = np.zeros(MAX_NODES, np.float32), np.zeros(MAX_EDGES, np.float32)
    n = e = 0
    for index, (atoms, edges, types) in enumerate(molecules):
        atom[n : n + len(atoms)], graph[n : n + len(atoms)] = atoms, index
        node_mask[n : n + len(atoms)] = 1
        edge_index[:, e : e + len(types)], edge_type[e : e + len(types)] = edges + n, types
        edge_mask[e : e + len(types)] = 1
        n, e = n + len(atoms), e + len(types)
    arrays = dict(atom=atom, graph=graph, edge_index=edge_index, edge_type=edge_type, node_mask=node_mask, edge_mask=edge_mask)
    target = np.zeros(MAX_GRAPHS, np.float32)
    target[: len(molecules)] = [atoms.mean() for atoms, _, _ in molecules]
    return {name: torch.from_numpy(array) for name, array in arrays.items()}, torch.from_numpy(target), len(molecules)


def main():
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    molecules = [random_molecule(rng) for _ in range(30)]
    model = GIN()
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for epoch in range(3):
        order, total = rng.permutation(len(molecules)), 0.0
        for start in range(0, len(order), MAX_GRAPHS):
            batch, target, count = collate([molecules[i] for i in order[start : start + MAX_GRAPHS]])
            loss = (compiled(batch) - target)[:count].square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() * count
        print(f"epoch {epoch} mse {total / len(molecules):.2f}")


if __name__ == "__main__":
    main()
