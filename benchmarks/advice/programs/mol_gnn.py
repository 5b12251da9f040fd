"""Predicts a molecular property with a message-passing network on batches of ragged graphs."""

from dataclasses import dataclass

import torch
from torch import nn


@dataclass
class GraphBatch:
    x: torch.Tensor
    edge_index: torch.Tensor
    batch: torch.Tensor
    y: torch.Tensor


def random_molecule(rng, atoms):
    x = torch.randn(atoms, 8, generator=rng)
    bonds = torch.stack([torch.arange(atoms - 1), torch.arange(1, atoms)])
    return x, torch.cat([bonds, bonds.flip(0)], dim=1)


def collate(molecules):
    xs, edges, owner, offset = [], [], [], 0
    for index, (x, edge_index) in enumerate(molecules):
        xs.append(x)
        edges.append(edge_index + offset)
        owner.append(torch.full((len(x),), index))
        offset += len(x)
    target = torch.stack([x.sum() / 10 for x in xs])
    return GraphBatch(torch.cat(xs), torch.cat(edges, dim=1), torch.cat(owner), target)


def scatter_sum(src, index, dim_size):
    return src.new_zeros(dim_size, src.shape[1]).index_add_(0, index, src)


class MessageLayer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.message = nn.Sequential(nn.Linear(2 * width, width), nn.ReLU())
        self.update = nn.Linear(2 * width, width)

    def forward(self, h, edge_index):
        source, target = edge_index
        messages = self.message(torch.cat([h[source], h[target]], dim=1))
        return torch.relu(self.update(torch.cat([h, scatter_sum(messages, target, h.shape[0])], dim=1)))


class PropertyNet(nn.Module):
    def __init__(self, width=16, depth=2):
        super().__init__()
        self.embed = nn.Linear(8, width)
        self.layers = nn.ModuleList(MessageLayer(width) for _ in range(depth))
        self.head = nn.Linear(width, 1)

    def forward(self, x, edge_index, batch):
        h = self.embed(x)
        for layer in self.layers:
            h = layer(h, edge_index)
        num_graphs = int(batch.max()) + 1
        pooled = scatter_sum(h, batch, num_graphs)
        return self.head(pooled).squeeze(1)


def main():
    torch.manual_seed(0)
    rng = torch.Generator().manual_seed(1)
    sizes = [[5, 9, 7, 6], [8, 4, 11, 6], [6, 6, 5, 7], [12, 9, 4, 5], [7, 7, 9, 8]]
    loader = [collate([random_molecule(rng, n) for n in row]) for row in sizes]
    model = PropertyNet()
    compiled = torch.compile(model, backend="eager")
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    for epoch in range(6):
        total = 0.0
        for data in loader:
            loss = (compiled(data.x, data.edge_index, data.batch) - data.y).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch} loss {total / len(loader):.4f}")


if __name__ == "__main__":
    main()
