"""Scores texts with a small decoder whose layers are nested compile regions, so that one layer is traced for all of them."""

import torch
import torch.nn.functional as F
from torch import nn


class Config:
    vocab_size = 97
    dim = 32
    heads = 4
    layers = 6
    max_len = 64


class RMSNorm(nn.Module):
    def __init__(self, dim, eps=1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))
        self.eps = eps

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight


class DecoderLayer(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.heads = config.heads
        self.attn_norm = RMSNorm(config.dim)
        self.mlp_norm = RMSNorm(config.dim)
        self.qkv = nn.Linear(config.dim, 3 * config.dim, bias=False)
        self.proj = nn.Linear(config.dim, config.dim, bias=False)
        self.gate_up = nn.Linear(config.dim, 4 * config.dim, bias=False)
        self.down = nn.Linear(2 * config.dim, config.dim, bias=False)

    def attention(self, x, mask):
        batch, length, dim = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, self.heads, dim // self.heads).permute(2, 0, 3, 1, 4)
        scores = (q @ k.transpose(-1, -2)) * (dim // self.heads) ** -0.5
        weights = scores.masked_fill(mask, float("-inf")).softmax(dim=-1)
        return self.proj((weights @ v).transpose(1, 2).reshape(batch, length, dim))

    @torch.compiler.nested_compile_region
    def forward(self, x, mask):
        x = x + self.attention(self.attn_norm(x), mask)
        gate, up = self.gate_up(self.mlp_norm(x)).chunk(2, dim=-1)
        x = x + self.down(F.silu(gate) * up)
        if torch.isinf(x).any() or torch.isnan(x).any():
            limit = torch.finfo(x.dtype).max - 1000
            x = torch.clamp(x, min=-limit, max=limit)
        return x


class Decoder(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.tokens = nn.Embedding(config.vocab_size, config.dim)
        self.positions = nn.Embedding(config.max_len, config.dim)
        self.layers = nn.ModuleList(DecoderLayer(config) for _ in range(config.layers))
        self.norm = RMSNorm(config.dim)
        self.lm_head = nn.Linear(config.dim, config.vocab_size, bias=False)

    def forward(self, ids):
        length = ids.shape[1]
        mask = torch.ones(length, length, dtype=torch.bool).triu(1)
        x = self.tokens(ids) + self.positions.weight[:length]
        for layer in self.layers:
            x = layer(x, mask)
        return self.lm_head(self.norm(x))


@torch.no_grad()
def perplexity(model, ids):
    logits = model(ids[:, :-1])
    return F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten()).exp()


def main():
    torch.manual_seed(0)
    decoder = Decoder(Config()).eval()
    scorer = torch.compile(decoder, backend="aot_eager")
    for number in range(3):
        ids = torch.randint(Config.vocab_size, (4, 25))
        print(f"batch {number} perplexity {perplexity(scorer, ids).item():.3f}")


if __name__ == "__main__":
    main()
