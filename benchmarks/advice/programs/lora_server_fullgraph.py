"""Serves one base model with many LoRA adapters; requests name the adapter, the compiled forward is reused for all of them."""

import torch
import torch.nn.functional as F
from torch import nn

TENANTS = ("base", "legal", "medical", "sql", "poetry", "german", "french", "support", "summary", "code", "math")


class LoraLinear(nn.Module):
    def __init__(self, linear, rank=4, alpha=8):
        super().__init__()
        self.linear = linear
        self.rank = rank
        self.scaling = alpha / rank
        self.lora_a = nn.ParameterDict()
        self.lora_b = nn.ParameterDict()
        self.active_adapter = "base"

    def add_adapter(self, name):
        self.lora_a[name] = nn.Parameter(torch.randn(self.rank, self.linear.in_features) * 0.1)
        self.lora_b[name] = nn.Parameter(torch.randn(self.linear.out_features, self.rank) * 0.1)

    def forward(self, x):
        out = self.linear(x)
        if self.active_adapter in self.lora_a:
            a, b = self.lora_a[self.active_adapter], self.lora_b[self.active_adapter]
            out = out + self.scaling * F.linear(F.linear(x, a), b)
        return out


class Classifier(nn.Module):
    def __init__(self, vocab=50, dim=24, classes=3):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.hidden = LoraLinear(nn.Linear(dim, dim))
        self.head = nn.Linear(dim, classes)

    def set_adapter(self, name):
        for module in self.modules():
            if isinstance(module, LoraLinear):
                module.active_adapter = name

    def forward(self, ids):
        x = self.embed(ids).mean(dim=1)
        return self.head(F.gelu(self.hidden(x)))


class Server:
    def __init__(self, model):
        self.model = model.eval()
        self.forward = torch.compile(self.model, backend="eager", fullgraph=True)

    @torch.inference_mode()
    def handle(self, tenant, ids):
        self.model.set_adapter(tenant)
        return self.forward(ids).softmax(dim=-1)


def main():
    torch.manual_seed(0)
    model = Classifier()
    for tenant in TENANTS[1:]:
        model.hidden.add_adapter(tenant)
    server = Server(model)
    requests = torch.randint(50, (len(TENANTS), 2, 12))
    for tenant, ids in zip(TENANTS, requests):
        scores = server.handle(tenant, ids)
        print(f"{tenant:8s} {[round(value, 3) for value in scores[0].tolist()]}")


if __name__ == "__main__":
    main()
