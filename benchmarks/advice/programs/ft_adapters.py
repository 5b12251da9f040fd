"""Fine-tunes a frozen encoder with one low-rank adapter per customer, and watches its activations with hooks."""

import torch
import torch.nn.functional as F
from torch import nn


class StraightThrough(torch.autograd.Function):
    """Rounds activations to `levels` levels; gradients pass unchanged."""

    @staticmethod
    def forward(ctx, x, levels):
        return (x * levels).round() / levels

    @staticmethod
    def backward(ctx, grad):
        return grad, None


class LoraLinear(nn.Module):
    def __init__(self, base, rank=4, alpha=8.0):
        super().__init__()
        self.base, self.rank, self.scaling = base, rank, alpha / rank
        self.lora_a, self.lora_b = nn.ParameterDict(), nn.ParameterDict()
        self.active = None

    def add(self, name):
        self.lora_a[name] = nn.Parameter(0.05 * torch.randn(self.rank, self.base.in_features))
        self.lora_b[name] = nn.Parameter(torch.zeros(self.base.out_features, self.rank))

    def forward(self, x):
        y = self.base(x)
        if self.active is not None:
            y = y + self.scaling * (x @ self.lora_a[self.active].T @ self.lora_b[self.active].T)
        return y


class Encoder(nn.Module):
    def __init__(self, vocab=60, dim=24, classes=3):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.up, self.down = LoraLinear(nn.Linear(dim, 48)), LoraLinear(nn.Linear(48, dim))
        self.head = nn.Linear(dim, classes)

    def forward(self, ids):
        x = self.embed(ids).mean(1)
        x = x + self.down(F.gelu(self.up(x)))
        return self.head(StraightThrough.apply(x, 64))

    def use(self, name):
        for module in self.modules():
            if isinstance(module, LoraLinear):
                module.active = name


class ActivationMonitor:
    """Running maximum of the outputs of the modules that it watches."""

    def __init__(self):
        self.peak = {}

    def watch(self, name, module):
        def hook(module, args, output):
            peak = output.detach().abs().max().item()
            self.peak[name] = max(self.peak.get(name, 0.0), peak)

        module.register_forward_hook(hook)


def batches(customer, count):
    generator = torch.Generator().manual_seed(len(customer))
    for _ in range(count):
        ids = torch.randint(0, 60, (8, 10), generator=generator)
        yield ids, (ids.sum(1) + len(customer)) % 3


def finetune(model, customer, count):
    model.use(customer)
    parameters = [p for name, p in model.named_parameters() if f".{customer}" in name]
    optimizer = torch.optim.AdamW(parameters, lr=0.02)
    for ids, target in batches(customer, count):
        loss = F.cross_entropy(model(ids), target)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return loss.item()


def main():
    torch.manual_seed(0)
    model = Encoder().requires_grad_(False)
    customers = ["acme", "globex", "initech", "umbrella"]
    for layer in (model.up, model.down):
        for customer in customers:
            layer.add(customer)
    monitor = ActivationMonitor()
    monitor.watch("up", model.up)
    model.compile(backend="aot_eager")
    for customer in customers:
        print(customer, f"{finetune(model, customer, 4):.3f}", f"peak {monitor.peak['up']:.2f}")


if __name__ == "__main__":
    main()
