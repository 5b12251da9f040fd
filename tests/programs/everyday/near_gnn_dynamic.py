"""Message passing on graphs with a varying number of edges, marked dynamic."""
import torch
from torch import nn


class Conv(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.msg = nn.Linear(2 * dim, dim)
        self.upd = nn.Linear(2 * dim, dim)

    def forward(self, h, edge):
        src, dst = edge[0], edge[1]
        m = torch.relu(self.msg(torch.cat([h[src], h[dst]], -1)))
        agg = torch.zeros_like(h).index_add(0, dst, m)
        return torch.relu(self.upd(torch.cat([h, agg], -1)))


class GNN(nn.Module):
    def __init__(self, feat=6, dim=12, layers=2):
        super().__init__()
        self.inp = nn.Linear(feat, dim)
        self.layers = nn.ModuleList(Conv(dim) for _ in range(layers))
        self.out = nn.Linear(dim, 1)

    def forward(self, x, edge):
        h = self.inp(x)
        for layer in self.layers:
            h = layer(h, edge)
        return self.out(h.mean(0))


def random_graph(n, e):
    x = torch.randn(n, 6)
    edge = torch.randint(0, n, (2, e))
    torch._dynamo.mark_dynamic(x, 0)
    torch._dynamo.mark_dynamic(edge, 1)
    return x, edge


def main():
    torch.manual_seed(0)
    model = GNN()
    fn = torch.compile(model, backend="aot_eager")
    opt = torch.optim.Adam(model.parameters(), 1e-2)
    for n, e in [(10, 30), (14, 41), (9, 22), (20, 77)]:
        x, edge = random_graph(n, e)
        loss = fn(x, edge).pow(2).sum()
        opt.zero_grad()
        loss.backward()
        opt.step()
    print("loss", loss.item())


main()
