"""Supervised fine-tuning of a small decoder on conversations that are packed into rows of fixed length."""

import torch
import torch.nn.functional as F
from torch import nn

ROW, VOCAB = 32, 48


def pack(samples, row=ROW):
    """First-fit packing; returns rows of (ids, lengths of the documents, the last of which is padding)."""
    rows = []
    for sample in sorted(samples, key=len, reverse=True):
        for packed in rows:
            if sum(map(len, packed)) + len(sample) <= row:
                packed.append(sample)
                break
        else:
            rows.append([sample])
    out = []
    for packed in rows:
        rest = row - sum(map(len, packed))
        lengths = [len(sample) for sample in packed] + ([rest] if rest else [])
        ids = torch.cat([*packed, torch.zeros(rest, dtype=torch.long)])
        out.append((ids, torch.tensor(lengths + [0] * (8 - len(lengths)))))
    return out


def rope(x, positions):
    half = x.shape[-1] // 2
    freqs = 10000 ** (-torch.arange(half) / half)
    angles = positions[:, None].float() * freqs
    cos, sin = angles.cos(), angles.sin()
    a, b = x.chunk(2, -1)
    return torch.cat([a * cos - b * sin, a * sin + b * cos], -1)


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.RMSNorm(dim), nn.RMSNorm(dim)
        self.qkv, self.out = nn.Linear(dim, 3 * dim, bias=False), nn.Linear(dim, dim, bias=False)
        self.up, self.down = nn.Linear(dim, 2 * dim), nn.Linear(2 * dim, dim)

    def forward(self, x, positions, mask):
        q, k, v = self.qkv(self.norm1(x)).unflatten(-1, (3, self.heads, -1)).permute(1, 2, 0, 3)
        a = F.scaled_dot_product_attention(rope(q, positions), rope(k, positions), v, attn_mask=mask)
        x = x + self.out(a.transpose(0, 1).flatten(1))
        return x + self.down(F.silu(self.up(self.norm2(x))))


class PackedDecoder(nn.Module):
    def __init__(self, dim=32, heads=4, layers=2):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, dim)
        self.blocks = nn.ModuleList(Block(dim, heads) for _ in range(layers))
        self.norm = nn.RMSNorm(dim)

    def forward(self, ids, lengths):
        starts = lengths.cumsum(0) - lengths
        documents = torch.arange(lengths.numel(), device=ids.device)
        segment = torch.repeat_interleave(documents, lengths)
        positions = torch.arange(ids.numel(), device=ids.device) - starts[segment]
        mask = (segment[:, None] == segment[None, :]).tril()
        x = self.embed(ids)
        for block in self.blocks:
            x = block(x, positions, mask)
        logits = self.norm(x) @ self.embed.weight.T
        same = segment[1:] == segment[:-1]
        losses = F.cross_entropy(logits[:-1], ids[1:], reduction="none")
        return (losses * same * (ids[1:] != 0)).sum() / (same * (ids[1:] != 0)).sum()


def main():
    torch.manual_seed(0)
    sizes = [5, 12, 20, 7, 9, 31, 4, 16, 11, 3, 8, 25]
    samples = [(torch.arange(size) * 3 + seed) % (VOCAB - 1) + 1 for seed, size in enumerate(sizes)]
    model = PackedDecoder()
    step = torch.compile(model, backend="eager")
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    rows = pack(samples)
    print(f"{len(samples)} samples in {len(rows)} rows")
    for epoch in range(3):
        total = 0.0
        for ids, lengths in rows:
            loss = step(ids, lengths)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch} loss {total / len(rows):.3f}")


if __name__ == "__main__":
    main()
