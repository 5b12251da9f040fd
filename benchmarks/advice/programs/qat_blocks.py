"""Quantization-aware training: fake-quantized linear layers with different bit widths, observers that freeze after warm-up."""

import torch
import torch.nn.functional as F
from torch import nn

WARMUP = 4


class RoundSTE(torch.autograd.Function):
    """Rounds; the gradient passes straight through."""

    @staticmethod
    def forward(ctx, x):
        return torch.round(x)

    @staticmethod
    def backward(ctx, grad):
        return grad


class Observer:
    """Running range of what it sees."""

    def __init__(self, momentum=0.8):
        self.momentum = momentum
        self.high = torch.tensor(1.0)

    def update(self, x):
        self.high = self.momentum * self.high + (1 - self.momentum) * x.abs().max()


class QuantLinear(nn.Module):
    def __init__(self, fan_in, fan_out, bits):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(fan_out, fan_in) / fan_in**0.5)
        self.bits = bits
        self.observer = Observer()
        self.frozen = False

    def forward(self, x):
        if not self.frozen:
            self.observer.update(x.detach())
        levels = 2 ** (self.bits - 1) - 1
        scale = self.observer.high / levels
        x = RoundSTE.apply((x / scale).clamp(-levels, levels)) * scale
        step = self.weight.detach().abs().amax(dim=1, keepdim=True) / levels
        weight = RoundSTE.apply(self.weight / step) * step
        return F.linear(x, weight)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        widths, bits = (16, 16, 16, 16), (8, 4, 8)
        self.layers = nn.ModuleList(QuantLinear(a, b, n) for a, b, n in zip(widths, widths[1:], bits))

    def forward(self, x):
        for number, layer in enumerate(self.layers):
            x = layer(x)
            if number < 2:
                x = F.relu(x)
        return x


def main():
    torch.manual_seed(0)
    net = Net()
    for layer in net.layers:
        layer.compile(backend="aot_eager")
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    inputs = torch.randn(7, 32, 16)
    targets = torch.randint(0, 4, (7, 32))
    for step, (x, y) in enumerate(zip(inputs, targets)):
        for layer in net.layers:
            layer.frozen = step >= WARMUP
        loss = F.cross_entropy(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(step, f"{loss.item():.3f}")
    print([f"{layer.observer.high:.3f}" for layer in net.layers])


if __name__ == "__main__":
    main()
