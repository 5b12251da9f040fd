"""Serves one small decoder to several tenants, each with its own LoRA adapter in the attention projections."""

import math

import torch
import torch.nn.functional as F
from torch import nn


class LoRALinear(nn.Module):
    def __init__(self, base, alpha=16):
        super().__init__()
        self.base = base
        self.alpha = alpha
        self.register_buffer("scaling", torch.zeros(()))
        self.lora_a = nn.Parameter(torch.zeros(4, base.in_features), requires_grad=False)
        self.lora_b = nn.Parameter(torch.zeros(base.out_features, 4), requires_grad=False)

    def load(self, a, b):
        self.lora_a = nn.Parameter(a, requires_grad=False)
        self.lora_b = nn.Parameter(b, requires_grad=False)
        self.scaling.fill_(self.alpha / a.shape[0])

    def forward(self, x):
        return self.base(x) + self.scaling * F.linear(F.linear(x, self.lora_a), self.lora_b)


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.q, self.k, self.v = (LoRALinear(nn.Linear(dim, dim)) for _ in range(3))
        self.o = nn.Linear(dim, dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))

    def forward(self, x):
        h = self.norm1(x)
        q, k, v = (p(h).unflatten(-1, (self.heads, -1)).transpose(1, 2) for p in (self.q, self.k, self.v))
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.o(a.transpose(1, 2).flatten(2))
        return x + self.mlp(self.norm2(x))


class Decoder(nn.Module):
    def __init__(self, vocab=64, dim=32, heads=4, layers=2, window=16):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.place = nn.Embedding(window, dim)
        self.blocks = nn.ModuleList(Block(dim, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(dim)

    def forward(self, ids):
        x = self.embed(ids) + self.place.weight[: ids.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.norm(x) @ self.embed.weight.T


def make_adapter(model, rank, seed):
    """Stands for a checkpoint that a tenant has uploaded."""
    gen = torch.Generator().manual_seed(seed)
    state = {}
    for name, module in model.named_modules():
        if isinstance(module, LoRALinear):
            a = torch.randn(rank, module.base.in_features, generator=gen) / math.sqrt(module.base.in_features)
            b = 0.1 * torch.randn(module.base.out_features, rank, generator=gen)
            state[name] = (a, b)
    return state


class Server:
    def __init__(self, model):
        self.model = model.eval()
        self.adapters = {}
        self.loaded = None
        self.score = torch.compile(model, backend="eager")

    def register(self, tenant, adapter):
        self.adapters[tenant] = adapter

    @torch.no_grad()
    def next_tokens(self, tenant, ids):
        if tenant != self.loaded:
            for name, (a, b) in self.adapters[tenant].items():
                self.model.get_submodule(name).load(a, b)
            self.loaded = tenant
        return self.score(ids)[:, -1].argmax(-1).tolist()


def main():
    torch.manual_seed(0)
    server = Server(Decoder())
    for seed, (tenant, rank) in enumerate([("acme", 4), ("globex", 8), ("initech", 8), ("umbrella", 16)]):
        server.register(tenant, make_adapter(server.model, rank, seed))
    requests = torch.randint(0, 64, (6, 2, 16), generator=torch.Generator().manual_seed(9))
    for tenant, ids in zip(["acme", "globex", "acme", "initech", "umbrella", "globex"], requests):
        print(tenant, server.next_tokens(tenant, ids))


if __name__ == "__main__":
    main()
