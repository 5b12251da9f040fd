"""Trains a tiny encoder-decoder to reverse digit strings; only the attention layers are compiled."""

import torch
import torch.nn.functional as F
from torch import nn

PAD, BOS = 10, 11


class MultiHeadAttention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.q_proj, self.k_proj, self.v_proj, self.out = (nn.Linear(dim, dim) for _ in range(4))

    def split(self, x):
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def forward(self, query, memory, mask):
        q = self.split(self.q_proj(query))
        k = self.split(self.k_proj(memory))
        v = self.split(self.v_proj(memory))
        weights = (q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5 + mask).softmax(-1)
        return self.out((weights @ v).transpose(1, 2).flatten(2))


class Layer(nn.Module):
    def __init__(self, dim, heads, cross):
        super().__init__()
        self.self_attn = MultiHeadAttention(dim, heads)
        self.cross_attn = MultiHeadAttention(dim, heads) if cross else None
        self.norms = nn.ModuleList(nn.LayerNorm(dim) for _ in range(3))
        self.ffn = nn.Sequential(nn.Linear(dim, 2 * dim), nn.ReLU(), nn.Linear(2 * dim, dim))

    def forward(self, x, mask, memory=None, memory_mask=None):
        x = self.norms[0](x + self.self_attn(x, x, mask))
        if self.cross_attn is not None:
            x = self.norms[1](x + self.cross_attn(x, memory, memory_mask))
        return self.norms[2](x + self.ffn(x))


class Seq2Seq(nn.Module):
    def __init__(self, length, dim=32, heads=4, layers=2):
        super().__init__()
        self.embed = nn.Embedding(12, dim)
        self.place = nn.Parameter(0.02 * torch.randn(length, dim))
        self.encoder = nn.ModuleList(Layer(dim, heads, cross=False) for _ in range(layers))
        self.decoder = nn.ModuleList(Layer(dim, heads, cross=True) for _ in range(layers))
        self.head = nn.Linear(dim, 12)
        free = torch.zeros(length, length)
        self.register_buffer("free", free)
        self.register_buffer("causal", free.masked_fill(torch.ones_like(free).triu(1).bool(), float("-inf")))

    def forward(self, source, target):
        memory = self.embed(source) + self.place
        for layer in self.encoder:
            memory = layer(memory, self.free)
        x = self.embed(target) + self.place
        for layer in self.decoder:
            x = layer(x, self.causal, memory, self.free)
        return self.head(x)


def compile_attention(model):
    for module in model.modules():
        if isinstance(module, MultiHeadAttention):
            module.compile(backend="aot_eager")


def batches(count, rows, length):
    for _ in range(count):
        source = torch.randint(0, 10, (rows, length))
        goal = source.flip(1)
        start = torch.full((rows, 1), BOS)
        yield source, torch.cat([start, goal[:, :-1]], 1), goal


def main():
    torch.manual_seed(0)
    model = Seq2Seq(length=6)
    compile_attention(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for step, (source, target, goal) in enumerate(batches(30, 16, 6)):
        logits = model(source, target)
        loss = F.cross_entropy(logits.flatten(0, 1), goal.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 9:
            accuracy = (logits.argmax(-1) == goal).float().mean()
            print(f"step {step + 1} loss {loss.item():.2f} accuracy {accuracy.item():.2f}")


if __name__ == "__main__":
    main()
