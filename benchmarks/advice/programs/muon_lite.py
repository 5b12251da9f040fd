"""Trains a small conv net with a Muon-style optimizer whose orthogonalized update is compiled as one graph."""

import torch
import torch.nn.functional as F
from torch import nn


def newton_schulz(G, steps=5, eps=1e-7):
    a, b, c = 3.4445, -4.7750, 2.0315
    X = G / (G.norm() + eps)
    tall = X.size(0) > X.size(1)
    if tall:
        X = X.T
    for _ in range(steps):
        A = X @ X.T
        X = a * X + (b * A + c * A @ A) @ X
    return X.T if tall else X


@torch.compile(backend="eager", fullgraph=True)
def muon_update(param, grad, momentum_buffer, lr, momentum, weight_decay):
    momentum_buffer.lerp_(grad, 1 - momentum)
    update = grad.lerp(momentum_buffer, momentum)
    update = newton_schulz(update.flatten(1)).view_as(grad)
    param.mul_(1 - lr * weight_decay)
    param.sub_(lr * update)


class Muon(torch.optim.Optimizer):
    def __init__(self, params, lr=0.02, momentum=0.95, weight_decay=0.01):
        super().__init__(params, dict(lr=lr, momentum=momentum, weight_decay=weight_decay))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if "momentum_buffer" not in state:
                    state["momentum_buffer"] = torch.zeros_like(p)
                muon_update(p, p.grad, state["momentum_buffer"], group["lr"], group["momentum"], group["weight_decay"])


class ConvNet(nn.Module):
    def __init__(self, widths=(8, 12, 16, 20, 24), classes=5):
        super().__init__()
        self.stem = nn.Conv2d(3, widths[0], 3, padding=1)
        self.convs = nn.ModuleList(nn.Conv2d(i, o, 3, padding=1) for i, o in zip(widths, widths[1:]))
        self.mix = nn.ModuleList(nn.Linear(i, o) for i, o in ((24, 64), (64, 48), (48, 40), (40, 32)))
        self.head = nn.Linear(32, classes)

    def forward(self, x):
        x = F.relu(self.stem(x))
        for conv in self.convs:
            x = F.relu(conv(x))
        x = x.mean(dim=(2, 3))
        for layer in self.mix:
            x = F.relu(layer(x))
        return self.head(x)


def main():
    torch.manual_seed(0)
    model = ConvNet()
    matrices = [param for param in model.parameters() if param.ndim >= 2]
    vectors = [param for param in model.parameters() if param.ndim < 2]
    optimizers = [Muon(matrices), torch.optim.SGD(vectors, lr=0.05)]
    images, labels = torch.randn(32, 3, 8, 8), torch.randint(5, (32,))
    for step in range(6):
        loss = F.cross_entropy(model(images), labels)
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
        print(f"step {step + 1} loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
