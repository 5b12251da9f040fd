"""One layer attention with a growing key/value cache and a position counter."""
import math

import torch
import torch.nn.functional as F
from torch import nn


class CachedAttention(nn.Module):
    def __init__(self, dim=16, max_pos=64):
        super().__init__()
        self.qkv = nn.Linear(dim, 3 * dim)
        self.out = nn.Linear(dim, dim)
        self.pos_emb = nn.Parameter(torch.randn(max_pos, dim) * 0.02)
        self.pos = 0

    def forward(self, x, past_k, past_v):
        x = x + self.pos_emb[self.pos]  # DX301
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        k = torch.cat([past_k, k], dim=1)  # DX102
        v = torch.cat([past_v, v], dim=1)
        att = q @ k.transpose(1, 2) / math.sqrt(q.size(-1))
        y = F.softmax(att, dim=-1) @ v
        self.pos += 1
        return self.out(y), k, v


class Generator:
    def __init__(self, layer, vocab=50, dim=16):
        self.layer = torch.compile(layer, backend="eager")
        self.emb = nn.Embedding(vocab, dim)
        self.head = nn.Linear(dim, vocab)

    @torch.inference_mode()
    def generate(self, prompt, n):
        k = v = torch.zeros(prompt.size(0), 1, 16)
        tok = prompt
        result = []
        for _ in range(n):
            y, k, v = self.layer(self.emb(tok)[:, None], k, v)
            tok = self.head(y[:, -1]).argmax(-1)
            result.append(tok)
        return torch.stack(result, 1)


torch.manual_seed(0)
gen = Generator(CachedAttention())
ids = gen.generate(torch.tensor([4, 7]), 12)
print(ids.shape)
