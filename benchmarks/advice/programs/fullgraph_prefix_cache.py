"""A prefix cache that is shared by request threads, read by a decoder step that is compiled as one graph."""

import threading

import torch
from torch import nn


class PrefixCache:
    def __init__(self, slots, length, dim):
        self.keys = torch.zeros(slots, length, dim)
        self.values = torch.zeros(slots, length, dim)
        self.lock = threading.RLock()

    def append(self, slot, position, key, value):
        with self.lock:
            self.keys.index_put_((slot, position), key)
            self.values.index_put_((slot, position), value)
            return self.keys[slot], self.values[slot]


class DecoderStep(nn.Module):
    def __init__(self, vocab=50, dim=16, slots=4, length=8):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.qkv = nn.Linear(dim, 3 * dim)
        self.out = nn.Linear(dim, vocab)
        self.cache = PrefixCache(slots, length, dim)
        self.register_buffer("arange", torch.arange(length))

    def forward(self, token, slot, position):
        query, key, value = self.qkv(self.embed(token)).chunk(3, dim=-1)
        keys, values = self.cache.append(slot, position, key, value)
        logits = (keys @ query.unsqueeze(-1)).squeeze(-1) / query.shape[-1] ** 0.5
        logits = logits.masked_fill(self.arange > position.unsqueeze(-1), float("-inf"))
        context = (logits.softmax(dim=-1).unsqueeze(1) @ values).squeeze(1)
        return self.out(context)


@torch.no_grad()
def decode(step, token, slot, length):
    tokens = []
    for index in range(length):
        logits = step(token, slot, torch.full_like(slot, index))
        token = logits.argmax(dim=-1)
        tokens.append(token.tolist())
    return tokens, logits


def main():
    torch.manual_seed(0)
    step = torch.compile(DecoderStep().eval(), backend="eager", fullgraph=True)
    tokens, logits = decode(step, torch.tensor([3, 7]), torch.tensor([0, 2]), length=5)
    print("tokens", tokens)
    print(f"logits {logits.sum().item():.4f}")


if __name__ == "__main__":
    main()
