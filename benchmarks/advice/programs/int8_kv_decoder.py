"""Greedy decoding with int8 weights and a preallocated KV cache, after the gpt-fast scripts."""

import torch
import torch.nn.functional as F
from torch import nn

MAX_LEN = 24


class Int8Linear(nn.Module):
    def __init__(self, linear):
        super().__init__()
        scale = linear.weight.detach().abs().amax(1, keepdim=True) / 127
        self.register_buffer("weight", (linear.weight.detach() / scale).round().to(torch.int8))
        self.register_buffer("scale", scale[:, 0])

    def forward(self, x):
        return F.linear(x, self.weight.to(x.dtype)) * self.scale


class KVCache(nn.Module):
    def __init__(self, rows, heads, head_dim):
        super().__init__()
        self.register_buffer("k", torch.zeros(rows, heads, MAX_LEN, head_dim))
        self.register_buffer("v", torch.zeros(rows, heads, MAX_LEN, head_dim))

    def update(self, place, k, v):
        self.k[:, :, place] = k
        self.v[:, :, place] = v
        return self.k, self.v


class Block(nn.Module):
    def __init__(self, dim, heads, rows):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.RMSNorm(dim), nn.RMSNorm(dim)
        self.wqkv, self.wo = nn.Linear(dim, 3 * dim, bias=False), nn.Linear(dim, dim, bias=False)
        self.w1, self.w2 = nn.Linear(dim, 3 * dim, bias=False), nn.Linear(3 * dim, dim, bias=False)
        self.cache = KVCache(rows, heads, dim // heads)

    def forward(self, x, place, rotary, mask):
        q, k, v = self.wqkv(self.norm1(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        k, v = self.cache.update(place, rotate(k, rotary), v)
        a = F.scaled_dot_product_attention(rotate(q, rotary), k, v, attn_mask=mask)
        x = x + self.wo(a.transpose(1, 2).flatten(2))
        return x + self.w2(F.silu(self.w1(self.norm2(x))))


def rotate(x, rotary):
    a, b = x.chunk(2, -1)
    cos, sin = rotary
    return torch.cat([a * cos - b * sin, a * sin + b * cos], -1)


class Decoder(nn.Module):
    def __init__(self, vocab=64, dim=32, heads=4, layers=2, rows=2):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.blocks = nn.ModuleList(Block(dim, heads, rows) for _ in range(layers))
        self.norm, self.head = nn.RMSNorm(dim), nn.Linear(dim, vocab, bias=False)
        freqs = 10000 ** (-torch.arange(dim // heads // 2) / (dim // heads // 2))
        angles = torch.arange(MAX_LEN)[:, None] * freqs
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())
        self.register_buffer("causal", torch.ones(MAX_LEN, MAX_LEN).tril().bool())

    def forward(self, ids, place):
        x = self.embed(ids)
        rotary, mask = (self.cos[place], self.sin[place]), self.causal[place]
        for block in self.blocks:
            x = block(x, place, rotary, mask)
        return self.head(self.norm(x))[:, -1]


def quantize(module):
    for name, child in list(module.named_children()):
        if isinstance(child, nn.Linear):
            setattr(module, name, Int8Linear(child))
        else:
            quantize(child)
    return module


@torch.no_grad()
def generate(prefill, decode, prompt, tokens):
    token = prefill(prompt, torch.arange(prompt.shape[1])).argmax(-1, keepdim=True)
    out, place = [token], torch.tensor([prompt.shape[1]])
    for _ in range(tokens - 1):
        token = decode(token.clone(), place).argmax(-1, keepdim=True)
        out.append(token)
        place = place + 1
    return torch.cat(out, 1)


def main():
    torch.manual_seed(0)
    model = quantize(Decoder()).eval()
    decode = torch.compile(model, backend="aot_eager", fullgraph=True, dynamic=False)
    for turn in range(3):
        prompt = torch.randint(0, 64, (2, 5 + turn))
        print(generate(model, decode, prompt, 10).tolist())


if __name__ == "__main__":
    main()
