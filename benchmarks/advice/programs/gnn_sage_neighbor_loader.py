"""GraphSAGE node classification trained on sampled neighborhoods of a random graph."""

import torch
from torch import nn
from torch.nn import functional as F


@torch.compile(backend="eager")
def scatter_mean(src, index, dim_size):
    total = src.new_zeros(dim_size, src.size(1)).index_add(0, index, src)
    degree = src.new_zeros(dim_size).index_add(0, index, torch.ones_like(index, dtype=src.dtype))
    return total / degree.clamp(min=1).unsqueeze(-1)


class SAGEConv(nn.Module):
    def __init__(self, in_dim, out_dim):
        super().__init__()
        self.lin_self = nn.Linear(in_dim, out_dim)
        self.lin_neigh = nn.Linear(in_dim, out_dim, bias=False)

    def forward(self, x, edge_index):
        row, col = edge_index
        neighbors = scatter_mean(x[row], col, x.size(0))
        return self.lin_self(x) + self.lin_neigh(neighbors)


class GraphSAGE(nn.Module):
    def __init__(self, in_dim, hidden, num_classes):
        super().__init__()
        self.conv1 = SAGEConv(in_dim, hidden)
        self.conv2 = SAGEConv(hidden, num_classes)

    def forward(self, x, edge_index):
        x = F.relu(self.conv1(x, edge_index))
        return self.conv2(x, edge_index)


def sample_subgraph(edges, seeds):
    keep = torch.isin(edges[1], seeds)
    nodes, local = edges[:, keep].unique(return_inverse=True)
    return nodes, local.view(2, -1)


def main():
    torch.manual_seed(0)
    num_nodes = 120
    edges = torch.randint(0, num_nodes, (2, 900))
    features = torch.randn(num_nodes, 16)
    labels = (features.sum(dim=1) > 0).long()

    model = GraphSAGE(16, 16, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(2):
        for seeds in torch.randperm(num_nodes).split(20):
            nodes, edge_index = sample_subgraph(edges, seeds)
            logits = model(features[nodes], edge_index)
            loss = F.cross_entropy(logits, labels[nodes])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
