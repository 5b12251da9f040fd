"""Serves one base model with a LoRA adapter per customer; adapters are loaded from checkpoints and switched per request."""

from dataclasses import dataclass

import torch
from torch import nn


@dataclass
class Request:
    tenant: str
    features: torch.Tensor


class LoraLinear(nn.Module):
    def __init__(self, base, rank):
        super().__init__()
        self.base = base
        self.rank = rank
        self.lora_a = nn.ParameterDict()
        self.lora_b = nn.ParameterDict()
        self.scaling = {}
        self.active_adapter = None

    def load_adapter(self, name, alpha, generator):
        a = torch.randn(self.rank, self.base.in_features, generator=generator) * 0.1
        b = torch.randn(self.base.out_features, self.rank, generator=generator) * 0.1
        self.lora_a[name] = nn.Parameter(a, requires_grad=False)
        self.lora_b[name] = nn.Parameter(b, requires_grad=False)
        self.scaling[name] = alpha / self.rank

    def forward(self, x):
        out = self.base(x)
        name = self.active_adapter
        if name is None:
            return out
        update = (x @ self.lora_a[name].T) @ self.lora_b[name].T
        return out + self.scaling[name] * update


class Ranker(nn.Module):
    def __init__(self, dim=16, hidden=32):
        super().__init__()
        self.up = nn.Linear(dim, hidden)
        self.norm = nn.LayerNorm(hidden)
        self.down = nn.Linear(hidden, 1)

    def forward(self, x):
        return self.down(self.norm(torch.relu(self.up(x)))).squeeze(-1)


def inject_lora(model, rank):
    for name, child in model.named_children():
        if isinstance(child, nn.Linear):
            setattr(model, name, LoraLinear(child, rank))
    return model


def lora_layers(model):
    return [module for module in model.modules() if isinstance(module, LoraLinear)]


class MultiTenantRanker:
    def __init__(self, model, checkpoints):
        self.model = model
        for tenant, (seed, alpha) in checkpoints.items():
            generator = torch.Generator().manual_seed(seed)
            for layer in lora_layers(model):
                layer.load_adapter(tenant, alpha, generator)
        self.score = torch.compile(model, backend="eager")

    def set_adapter(self, tenant):
        for layer in lora_layers(self.model):
            layer.active_adapter = tenant

    @torch.no_grad()
    def rank(self, request):
        self.set_adapter(request.tenant)
        scores = self.score(request.features)
        return scores.argsort(descending=True).tolist()


def main():
    torch.manual_seed(0)
    model = inject_lora(Ranker().eval().requires_grad_(False), rank=4)
    tenants = ["acme", "globex", "initech", "umbrella", "hooli", "stark", "wayne", "tyrell", "cyberdyne", "aperture"]
    checkpoints = {tenant: (seed, 8 if seed % 3 else 16) for seed, tenant in enumerate(tenants, 1)}
    server = MultiTenantRanker(model, checkpoints)
    traffic = [*tenants[:4], "acme", *tenants[4:], "globex", "acme"]
    for number, tenant in enumerate(traffic):
        order = server.rank(Request(tenant, torch.randn(6, 16)))
        print(f"request {number} {tenant:8s} {order}")


if __name__ == "__main__":
    main()
