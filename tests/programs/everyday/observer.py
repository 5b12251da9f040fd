"""Quantisation aware training with a min/max observer in the forward."""
import torch
from torch import nn


class MinMaxObserver(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("lo", torch.tensor(0.0))
        self.register_buffer("hi", torch.tensor(0.0))

    def forward(self, x):
        mn, mx = x.detach().aminmax()
        self.lo.copy_(torch.minimum(self.lo, mn))
        self.hi.copy_(torch.maximum(self.hi, mx))
        return x

    def qparams(self):
        scale = (self.hi - self.lo) / 255
        try:
            if scale <= 0:  # DX206
                raise ValueError("empty range")
            zp = torch.round(-self.lo / scale)
        except ValueError:
            scale, zp = torch.tensor(1.0), torch.tensor(0.0)
        return scale, zp


class FakeQuant(nn.Module):
    def __init__(self, obs):
        super().__init__()
        self.obs = obs

    def forward(self, x):
        x = self.obs(x)
        scale, zp = self.obs.qparams()
        q = torch.clamp(torch.round(x / scale) + zp, 0, 255)
        return x + ((q - zp) * scale - x).detach()


class QNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(8, 16)
        self.fq = FakeQuant(MinMaxObserver())
        self.fc2 = nn.Linear(16, 2)

    def forward(self, x):
        return self.fc2(self.fq(torch.relu(self.fc1(x))))


def main():
    torch.manual_seed(0)
    net = QNet()
    model = torch.compile(net, backend="eager")
    opt = torch.optim.SGD(net.parameters(), lr=0.05)
    for _ in range(3):
        loss = model(torch.randn(32, 8)).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    print("range", net.fq.obs.lo.item(), round(net.fq.obs.hi.item(), 2))


main()
