"""A generation server with one base model that loads the LoRA adapter that each request names."""

from dataclasses import dataclass

import torch
from torch import nn


@dataclass
class AdapterConfig:
    name: str
    r: int
    lora_alpha: float


@dataclass
class Request:
    prompt: torch.Tensor
    adapter: str


class LoraLinear(nn.Module):
    def __init__(self, base):
        super().__init__()
        self.base = base
        self.lora_A = nn.Parameter(torch.zeros(4, base.in_features))
        self.lora_B = nn.Parameter(torch.zeros(base.out_features, 4))
        self.scaling = 1.0

    def forward(self, x):
        update = x @ self.lora_A.t() @ self.lora_B.t()
        return self.base(x) + update * self.scaling

    @torch.no_grad()
    def load(self, lora_A, lora_B, scaling):
        if lora_A.shape == self.lora_A.shape:
            self.lora_A.copy_(lora_A)
            self.lora_B.copy_(lora_B)
        else:
            self.lora_A = nn.Parameter(lora_A.clone())
            self.lora_B = nn.Parameter(lora_B.clone())
        self.scaling = scaling


class Mlp(nn.Module):
    def __init__(self, dim=12):
        super().__init__()
        self.up_proj = LoraLinear(nn.Linear(dim, 3 * dim))
        self.down_proj = nn.Linear(3 * dim, dim)

    def forward(self, x):
        return x + self.down_proj(nn.functional.silu(self.up_proj(x)))


class Server:
    def __init__(self, configs, dim=12):
        self.model = Mlp(dim).eval()
        self.run = torch.compile(self.model, backend="eager")
        self.active = None
        self.adapters = {}
        for config in configs:
            lora_A = torch.randn(config.r, dim) / config.r
            lora_B = torch.randn(3 * dim, config.r) / config.r
            self.adapters[config.name] = (lora_A, lora_B, config.lora_alpha / config.r)

    def set_adapter(self, name):
        if name != self.active:
            self.model.up_proj.load(*self.adapters[name])
            self.active = name

    @torch.no_grad()
    def generate(self, request):
        self.set_adapter(request.adapter)
        return self.run(request.prompt)


def main():
    torch.manual_seed(0)
    configs = [
        AdapterConfig("support", r=4, lora_alpha=8),
        AdapterConfig("summary", r=4, lora_alpha=4),
        AdapterConfig("sql", r=8, lora_alpha=8),
    ]
    server = Server(configs)
    prompt = torch.randn(2, 12)
    for adapter in ["support", "support", "summary", "support", "sql", "sql"]:
        print(f"{adapter}: {server.generate(Request(prompt, adapter)).sum().item():.4f}")


if __name__ == "__main__":
    main()
