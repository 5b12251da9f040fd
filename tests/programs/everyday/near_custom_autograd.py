"""Straight-through estimator and a custom activation as autograd functions."""
import torch
from torch import nn


class RoundSTE(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return torch.round(x)

    @staticmethod
    def backward(ctx, g):
        return g


class ClampedSquare(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, limit):
        ctx.save_for_backward(x)
        ctx.limit = limit
        return x.clamp(-limit, limit).square()

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        inside = (x.abs() <= ctx.limit).to(g.dtype)
        return g * 2 * x * inside, None


class BinaryLayer(nn.Module):
    def __init__(self, n_in, n_out, limit=2.0):
        super().__init__()
        self.lin = nn.Linear(n_in, n_out)
        self.limit = limit

    def forward(self, x):
        code = RoundSTE.apply(torch.sigmoid(self.lin(x)))
        return ClampedSquare.apply(code * 2 - 0.5, self.limit)


class AutoEncoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc = BinaryLayer(10, 6)
        self.dec = nn.Linear(6, 10)

    def forward(self, x):
        return self.dec(self.enc(x))


def main():
    torch.manual_seed(0)
    net = AutoEncoder()
    fn = torch.compile(net, backend="aot_eager", fullgraph=True)
    opt = torch.optim.RMSprop(net.parameters(), lr=1e-3)
    for _ in range(4):
        x = torch.randn(8, 10)
        loss = nn.functional.mse_loss(fn(x), x)
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        opt.step()
    print(loss.item())


main()
