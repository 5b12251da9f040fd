"""Streams interactions of users and items through a temporal graph network with a memory per node."""
import torch
from torch import nn

NODES, DIM = 40, 16


class TimeEncoder(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.freq = nn.Parameter(torch.linspace(0.1, 2.0, dim))

    def forward(self, delta):
        return torch.cos(delta[:, None] * self.freq)


class TemporalGraph(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("memory", torch.zeros(NODES, DIM))
        self.register_buffer("last_seen", torch.zeros(NODES))
        self.encode_time = TimeEncoder(DIM)
        self.message = nn.Linear(3 * DIM, DIM)
        self.cell = nn.GRUCell(DIM, DIM)
        self.score = nn.Bilinear(DIM, DIM, 1)

    def forward(self, src, dst, stamp):
        memory = self.memory
        encoded = self.encode_time(stamp - self.last_seen[src])
        message = self.message(torch.cat([memory[src], memory[dst], encoded], dim=1)).relu()
        touched, where = torch.unique(src, return_inverse=True)
        pooled = torch.zeros(touched.shape[0], DIM).index_add(0, where, message)
        updated = self.cell(pooled, memory[touched])
        new_memory = memory.index_copy(0, touched, updated)
        return self.score(new_memory[src], new_memory[dst]).squeeze(1), new_memory


def stream(events, start=0.0):
    clock = start
    while events > 0:
        size = min(events, int(torch.randint(6, 14, ()).item()))
        src = torch.randint(0, NODES // 2, (size,))
        dst = torch.randint(NODES // 2, NODES, (size,))
        stamp = clock + torch.rand(size).cumsum(0)
        clock = stamp[-1].item()
        yield src, dst, stamp
        events -= size


def main():
    torch.manual_seed(21)
    model = TemporalGraph()
    step = torch.compile(model, backend="eager")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    total, batches = 0.0, 0
    for src, dst, stamp in stream(50):
        score, memory = step(src, dst, stamp)
        loss = nn.functional.binary_cross_entropy_with_logits(score, torch.ones_like(score))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        model.memory = memory.detach()
        model.last_seen[src] = stamp
        total += loss.item()
        batches += 1
    print("train batches", batches, f"loss {total / batches:.3f}")
    model.eval()
    with torch.no_grad():
        src, dst, stamp = next(stream(13, start=40.0))
        score, _ = step(src, dst, stamp)
        print(f"eval score {score.sigmoid().mean().item():.3f}")


if __name__ == "__main__":
    main()
