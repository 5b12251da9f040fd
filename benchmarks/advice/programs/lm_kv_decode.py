"""Samples text from a small character language model, with a key/value cache that is written by hand."""

from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import nn

VOCAB = "abcdefghijklmnopqrstuvwxyz .,!?\n"


class CharTokenizer:
    def __init__(self, vocab):
        self.index = {char: number for number, char in enumerate(vocab)}
        self.chars = list(vocab)

    def encode(self, text):
        return torch.tensor([[self.index[char] for char in text]])

    def decode(self, ids):
        return "".join(self.chars[number] for number in ids)


@dataclass
class KVCache:
    layers: int
    keys: dict = field(default_factory=dict)
    values: dict = field(default_factory=dict)
    seen: int = 0

    def update(self, layer, k, v):
        if layer in self.keys:
            k = torch.cat([self.keys[layer], k], dim=2)
            v = torch.cat([self.values[layer], v], dim=2)
        self.keys[layer], self.values[layer] = k, v
        return k, v


class Block(nn.Module):
    def __init__(self, dim, heads, layer):
        super().__init__()
        self.heads, self.layer = heads, layer
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))

    def forward(self, x, cache):
        b, t, d = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        k, v = cache.update(self.layer, k, v)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=t > 1)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, d))
        return x + self.mlp(self.norm2(x))


class CharLM(nn.Module):
    def __init__(self, vocab, dim=32, heads=4, layers=2, context=128):
        super().__init__()
        self.tok, self.pos = nn.Embedding(vocab, dim), nn.Embedding(context, dim)
        self.blocks = nn.ModuleList(Block(dim, heads, layer) for layer in range(layers))
        self.head = nn.Linear(dim, vocab)

    def forward(self, ids, cache):
        positions = torch.arange(cache.seen, cache.seen + ids.shape[1])
        x = self.tok(ids) + self.pos(positions)
        for block in self.blocks:
            x = block(x, cache)
        cache.seen += ids.shape[1]
        return self.head(x[:, -1])


@torch.compile(backend="aot_eager")
def penalize(logits, generated, penalty):
    """The repetition penalty of CTRL: tokens that were generated before become less likely."""
    for token in set(generated.tolist()):
        score = logits[:, token]
        logits[:, token] = torch.where(score > 0, score / penalty, score * penalty)
    return logits


@torch.no_grad()
def generate(model, tokenizer, prompt, steps, penalty):
    cache = KVCache(layers=len(model.blocks))
    ids = tokenizer.encode(prompt)
    history = ids[0]
    for _ in range(steps):
        logits = penalize(model(ids, cache), history[-16:], penalty)
        ids = logits.argmax(-1, keepdim=True)
        history = torch.cat([history, ids[0]])
    return tokenizer.decode(history.tolist())


def main():
    torch.manual_seed(0)
    tokenizer = CharTokenizer(VOCAB)
    model = CharLM(len(VOCAB)).eval()
    model.compile(backend="aot_eager")
    for prompt in ("the quick brown fox ", "hello world, this is "):
        print(repr(generate(model, tokenizer, prompt, steps=12, penalty=1.3)))


if __name__ == "__main__":
    main()
