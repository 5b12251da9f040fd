"""A bidirectional diagonal state space classifier with dropout; trained for two epochs and validated after each."""
import math

import torch
from torch import nn


class S4DKernel(nn.Module):
    def __init__(self, channels, states=8):
        super().__init__()
        self.log_dt = nn.Parameter(torch.linspace(math.log(0.001), math.log(0.1), channels))
        self.log_real = nn.Parameter(torch.full((channels, states), math.log(0.5)))
        self.register_buffer("imag", math.pi * torch.arange(states).repeat(channels, 1).float())
        self.c = nn.Parameter(torch.randn(channels, states))

    def forward(self, length):
        a = torch.complex(-self.log_real.exp(), self.imag)
        dt_a = a * self.log_dt.exp()[:, None]
        powers = (dt_a[..., None] * torch.arange(length)).exp()
        return 2 * (self.c[..., None] * powers).sum(1).real


class S4DLayer(nn.Module):
    def __init__(self, channels, dropout):
        super().__init__()
        self.ahead = S4DKernel(channels)
        self.back = S4DKernel(channels)
        self.skip = nn.Parameter(torch.ones(channels))
        self.mix = nn.Linear(channels, channels)
        self.dropout = nn.Dropout(dropout)

    @staticmethod
    def convolve(u, k):
        n = 2 * u.shape[-1]
        return torch.fft.irfft(torch.fft.rfft(u, n=n) * torch.fft.rfft(k, n=n), n=n)[..., :u.shape[-1]]

    def forward(self, u):
        length = u.shape[-1]
        y = self.convolve(u, self.ahead(length)) + self.convolve(u.flip(-1), self.back(length)).flip(-1)
        y = self.dropout(nn.functional.gelu(y / 4 + self.skip[:, None] * u))
        return self.mix(y.transpose(1, 2)).transpose(1, 2)


class Classifier(nn.Module):
    def __init__(self, channels=8, layers=2, classes=4, dropout=0.1):
        super().__init__()
        self.encode = nn.Linear(1, channels)
        self.layers = nn.ModuleList(S4DLayer(channels, dropout) for _ in range(layers))
        self.norms = nn.ModuleList(nn.LayerNorm(channels) for _ in range(layers))
        self.decode = nn.Linear(channels, classes)

    def forward(self, x):
        h = self.encode(x)
        for layer, norm in zip(self.layers, self.norms):
            h = norm(h + layer(h.transpose(1, 2)).transpose(1, 2))
        return self.decode(h.mean(1))


def waves(count, length=64):
    label = torch.randint(0, 4, (count,))
    t = torch.linspace(0, 1, length)
    wave = torch.sin(2 * math.pi * (label[:, None] + 1) * t) + 0.2 * torch.randn(count, length)
    return wave[..., None], label


def main():
    torch.manual_seed(2)
    model = Classifier()
    compiled = torch.compile(model, backend="eager")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for epoch in range(2):
        compiled.train()
        for _ in range(4):
            x, y = waves(16)
            loss = nn.functional.cross_entropy(compiled(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        compiled.eval()
        with torch.no_grad():
            x, y = waves(16)
            validation = nn.functional.cross_entropy(compiled(x), y)
        print(f"epoch {epoch} train {loss.item():.2f} validation {validation.item():.2f}")


if __name__ == "__main__":
    main()
