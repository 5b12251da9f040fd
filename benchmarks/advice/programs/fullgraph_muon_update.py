"""A Muon-style optimizer whose per-matrix update is one compiled graph, on a small convolutional pyramid."""

import torch
import torch.nn.functional as F
from torch import nn


def orthogonalize(update, steps=3):
    a, b, c = 3.4445, -4.7750, 2.0315
    x = update / (update.norm() + 1e-7)
    for _ in range(steps):
        gram = x @ x.mT
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x


@torch.compile(backend="eager", fullgraph=True)
def muon_update(param, grad, momentum_buffer, lr, momentum):
    momentum_buffer.mul_(momentum).add_(grad)
    update = orthogonalize(grad.add(momentum_buffer, alpha=0.9))
    param.mul_(1 - 0.01 * lr).add_(update * -lr)


class Muon(torch.optim.Optimizer):
    def __init__(self, params, lr=0.02, momentum=0.95):
        super().__init__(params, dict(lr=torch.tensor(lr), momentum=torch.tensor(momentum)))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for param in group["params"]:
                state = self.state[param]
                if "momentum_buffer" not in state:
                    state["momentum_buffer"] = torch.zeros_like(param)
                muon_update(param, param.grad, state["momentum_buffer"], group["lr"], group["momentum"])


class Pyramid(nn.Module):
    def __init__(self, widths=(6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26)):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(i, o, bias=False) for i, o in zip(widths, widths[1:]))
        self.head = nn.Linear(widths[-1], 3)

    def forward(self, x):
        for layer in self.layers:
            x = F.silu(layer(x))
        return self.head(x)


def main():
    torch.manual_seed(0)
    model = Pyramid()
    muon = Muon([layer.weight for layer in model.layers])
    adamw = torch.optim.AdamW(model.head.parameters(), lr=1e-3)
    x, y = torch.randn(32, 6), torch.randint(0, 3, (32,))
    for step in range(3):
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        muon.step()
        adamw.step()
        model.zero_grad()
        print(f"step {step} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
