"""Trains GraphSAGE on a random citation graph with layer-wise neighbour sampling."""

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn


class SAGEConv(nn.Module):
    def __init__(self, c_in, c_out):
        super().__init__()
        self.lin_self = nn.Linear(c_in, c_out)
        self.lin_neigh = nn.Linear(c_in, c_out, bias=False)

    def forward(self, x, edge_index, num_nodes):
        src, dst = edge_index
        total = x.new_zeros(num_nodes, x.shape[1]).index_add(0, dst, x[src])
        degree = x.new_zeros(num_nodes).index_add(0, dst, x.new_ones(dst.shape[0]))
        return self.lin_self(x) + self.lin_neigh(total / degree.clamp(min=1).unsqueeze(1))


class GraphSAGE(nn.Module):
    def __init__(self, c_in, hidden, classes):
        super().__init__()
        self.convs = nn.ModuleList([SAGEConv(c_in, hidden), SAGEConv(hidden, classes)])

    def forward(self, x, edge_index):
        num_nodes = int(edge_index.max()) + 1
        x = F.relu(self.convs[0](x, edge_index, num_nodes))
        return self.convs[1](x, edge_index, num_nodes)


class NeighborSampler:
    def __init__(self, edge_index, num_nodes, fanout, batch_size, seed):
        order = np.argsort(edge_index[1], kind="stable")
        self.src = edge_index[0][order]
        self.ptr = np.searchsorted(edge_index[1][order], np.arange(num_nodes + 1))
        self.fanout, self.batch_size = fanout, batch_size
        self.rng = np.random.default_rng(seed)

    def sample(self, seeds):
        nodes = list(seeds)
        local = {node: i for i, node in enumerate(nodes)}
        edges, frontier = [], list(seeds)
        for fanout in self.fanout:
            reached = []
            for node in frontier:
                neighbours = self.src[self.ptr[node] : self.ptr[node + 1]]
                for other in self.rng.permutation(neighbours)[:fanout]:
                    if other not in local:
                        local[other] = len(nodes)
                        nodes.append(other)
                        reached.append(other)
                    edges.append((local[other], local[node]))
            frontier = reached
        edges += [(i, i) for i in range(len(nodes))]
        return torch.tensor(nodes), torch.tensor(edges).t().contiguous()

    def __call__(self, train_nodes):
        for start in range(0, len(train_nodes), self.batch_size):
            seeds = train_nodes[start : start + self.batch_size]
            yield len(seeds), *self.sample(seeds.tolist())


def main():
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    num_nodes = 300
    edge_index = rng.integers(num_nodes, size=(2, 1500))
    labels = torch.arange(num_nodes) % 4
    features = F.one_hot(labels, 4).float() + 0.5 * torch.randn(num_nodes, 4)
    loader = NeighborSampler(edge_index, num_nodes, fanout=(4, 3), batch_size=24, seed=1)
    model = GraphSAGE(4, 16, 4)
    compiled = torch.compile(model, backend="eager")
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for epoch in range(2):
        total = 0.0
        for n_seeds, nodes, edges in loader(rng.permutation(120)):
            logits = compiled(features[nodes], edges)[:n_seeds]
            loss = F.cross_entropy(logits, labels[nodes[:n_seeds]])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() * n_seeds
        print(f"epoch {epoch} loss {total / 120:.3f}")


if __name__ == "__main__":
    main()
