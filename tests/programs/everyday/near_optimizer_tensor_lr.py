"""Hand written compiled SGD with a tensor learning rate, gradient accumulation."""
import torch
from torch import nn

ACCUM = 2


class TinyConv(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(3, 8, 3, padding=1)
        self.head = nn.Linear(8, 2)

    def forward(self, x):
        return self.head(torch.relu(self.conv(x)).mean(-1))


class LinearWarmup:
    """Writes the new rate in place, the tensor stays the same object."""

    def __init__(self, lr, peak, warmup):
        self.lr, self.peak, self.warmup, self.n = lr, peak, warmup, 0

    def step(self):
        self.n += 1
        lr = self.peak * min(1.0, self.n / self.warmup)
        self.lr.fill_(lr)
        return lr


def main():
    torch.manual_seed(0)
    model = TinyConv()
    params = list(model.parameters())
    moments = [torch.zeros_like(p) for p in params]
    rate = torch.tensor(0.01)
    warm = LinearWarmup(rate, 0.02, 4)
    loss_fn = nn.CrossEntropyLoss()

    @torch.compile(backend="aot_eager")
    def micro(x, y):
        return loss_fn(model(x), y) / ACCUM

    @torch.compile(backend="eager", fullgraph=True)
    def apply(params, grads, moments, lr, beta=0.9):
        for p, g, m in zip(params, grads, moments):
            m.mul_(beta).add_(g)
            p.sub_(lr * m)

    for it in range(8):
        x, y = torch.randn(4, 3, 10), torch.randint(0, 2, (4,))
        micro(x, y).backward()
        if (it + 1) % ACCUM == 0:
            with torch.no_grad():
                apply(params, [p.grad for p in params], moments, rate)
            lr = warm.step()
            for p in params:
                p.grad.zero_()
    print("last lr", round(lr, 4))


main()
