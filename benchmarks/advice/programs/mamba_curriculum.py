"""Trains a minimal Mamba on selective copying with a curriculum of growing sequence lengths."""

import torch
import torch.nn.functional as F
from torch import nn


class MambaBlock(nn.Module):
    def __init__(self, dim=16, state=4, conv=4, dt_rank=2):
        super().__init__()
        self.inner, self.state, self.dt_rank = 2 * dim, state, dt_rank
        self.in_proj = nn.Linear(dim, 2 * self.inner, bias=False)
        self.conv1d = nn.Conv1d(self.inner, self.inner, conv, groups=self.inner, padding=conv - 1)
        self.x_proj = nn.Linear(self.inner, dt_rank + 2 * state, bias=False)
        self.dt_proj = nn.Linear(dt_rank, self.inner)
        self.A_log = nn.Parameter(torch.arange(1, state + 1).float().log().repeat(self.inner, 1))
        self.D = nn.Parameter(torch.ones(self.inner))
        self.out_proj = nn.Linear(self.inner, dim, bias=False)

    def forward(self, x):
        length = x.shape[1]
        u, gate = self.in_proj(x).chunk(2, dim=-1)
        u = F.silu(self.conv1d(u.transpose(1, 2))[..., :length].transpose(1, 2))
        y = self.ssm(u)
        return self.out_proj(y * F.silu(gate))

    def ssm(self, u):
        delta, B, C = self.x_proj(u).split([self.dt_rank, self.state, self.state], dim=-1)
        delta = F.softplus(self.dt_proj(delta))
        return self.selective_scan(u, delta, -torch.exp(self.A_log), B, C)

    def selective_scan(self, u, delta, A, B, C):
        decay = torch.exp(delta.unsqueeze(-1) * A)
        drive = (delta * u).unsqueeze(-1) * B.unsqueeze(2)
        h = torch.zeros_like(drive[:, 0])
        ys = []
        for t in range(u.shape[1]):
            h = decay[:, t] * h + drive[:, t]
            ys.append((h * C[:, t].unsqueeze(1)).sum(-1))
        return torch.stack(ys, dim=1) + u * self.D


class MambaLM(nn.Module):
    def __init__(self, vocab=12, dim=16, layers=1):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.blocks = nn.ModuleList(MambaBlock(dim) for _ in range(layers))
        self.norms = nn.ModuleList(nn.LayerNorm(dim) for _ in range(layers))
        self.head = nn.Linear(dim, vocab)

    def forward(self, ids):
        x = self.embed(ids)
        for norm, block in zip(self.norms, self.blocks):
            x = x + block(norm(x))
        return self.head(x)


def selective_copy(length, batch=8, memory=3):
    ids = torch.zeros(batch, length, dtype=torch.long)
    values = torch.randint(2, 12, (batch, memory))
    slots = torch.rand(batch, length - memory).argsort(dim=1)[:, :memory].sort(dim=1).values
    ids.scatter_(1, slots, values)
    ids[:, -memory:] = 1
    return ids, values


def main():
    torch.manual_seed(0)
    model = MambaLM()
    forward = torch.compile(model, backend="eager")
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    for length in (8, 12, 16, 20):
        for _ in range(3):
            ids, values = selective_copy(length)
            logits = forward(ids)[:, -3:]
            loss = F.cross_entropy(logits.flatten(0, 1), values.flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"length {length} loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
