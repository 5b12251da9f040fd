"""Trains a tiny neural audio codec: strided convolutions, residual vector quantization, spectral losses."""

import math
from functools import partial

import torch
import torch.nn.functional as F
from torch import nn

RATE = 4000


class Quantizer(nn.Module):
    """Residual quantization; the codebooks follow the encoder by moving averages."""

    def __init__(self, dim, size, stages, decay=0.9):
        super().__init__()
        self.decay = decay
        self.register_buffer("books", torch.randn(stages, size, dim))
        self.register_buffer("usage", torch.ones(stages, size))
        self.register_buffer("steps", torch.zeros((), dtype=torch.long))

    def forward(self, z):
        residual, out, codes = z, torch.zeros_like(z), []
        for stage, book in enumerate(self.books.unbind(0)):
            code = torch.cdist(residual, book).argmin(-1)
            picked = F.embedding(code, book)
            out = out + picked
            if self.training:
                with torch.no_grad():
                    hot = F.one_hot(code.flatten(), book.shape[0]).to(z.dtype)
                    sums = hot.T @ residual.flatten(0, -2)
                    self.usage[stage].lerp_(hot.sum(0), 1 - self.decay)
                    fresh = sums / hot.sum(0).clamp(min=1).unsqueeze(1)
                    seen = (hot.sum(0) > 0).unsqueeze(1)
                    self.books[stage] = torch.where(seen, book.lerp(fresh, 1 - self.decay), book)
            residual = residual - picked
            codes.append(code)
        self.steps += 1
        commit = F.mse_loss(z, out.detach())
        return z + (out - z).detach(), commit, torch.stack(codes)


class Codec(nn.Module):
    def __init__(self, dim=16, strides=(4, 4)):
        super().__init__()
        down, up, width = [], [], 1
        for stride in strides:
            down += [nn.Conv1d(width, dim, 2 * stride, stride, padding=stride // 2), nn.ELU()]
            up = [nn.ConvTranspose1d(dim, width, 2 * stride, stride, padding=stride // 2), nn.ELU()] + up
            width = dim
        self.down, self.up = nn.Sequential(*down), nn.Sequential(*up[:-1])
        self.quantizer = Quantizer(dim, size=32, stages=2)

    def forward(self, audio):
        z = self.down(audio).transpose(1, 2)
        q, commit, codes = self.quantizer(z)
        return self.up(q.transpose(1, 2)), commit, codes


def spectral_loss(made, real, sizes):
    total = made.new_zeros(())
    for size in sizes:
        window = torch.hann_window(size)
        spec = partial(torch.stft, n_fft=size, hop_length=size // 4, window=window, return_complex=True)
        a, b = (torch.view_as_real(spec(x.squeeze(1))).square().sum(-1) for x in (made, real))
        total = total + F.l1_loss((a + 1e-4).log(), (b + 1e-4).log())
    return total / len(sizes)


def loss_of(codec, audio):
    made, commit, codes = codec(audio)
    terms = {"wave": F.l1_loss(made, audio), "spectrum": spectral_loss(made, audio, (64, 128)), "commit": 0.25 * commit}
    return sum(terms.values()), {name: term.detach() for name, term in terms.items()}


def tones(batch, generator):
    time = torch.arange(1024) / RATE
    pitch = 100 + 300 * torch.rand(batch, 1, 1, generator=generator)
    return 0.5 * torch.sin(2 * math.pi * pitch * time)


def main():
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(1)
    codec = Codec()
    optimizer = torch.optim.Adam(codec.parameters(), lr=1e-2, eps=1e-6)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.95)
    step = torch.compile(loss_of, backend="aot_eager")
    history = []
    for number in range(12):
        loss, terms = step(codec, tones(8, generator))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        scheduler.step()
        history.append(terms["wave"])
        if number % 6 == 5:
            print(f"step {number}: improves {bool(history[-1] < history[0])}, lr {scheduler.get_last_lr()[0]:.5f}")
    print("steps", int(codec.quantizer.steps), "codes", tuple(codec.quantizer.books.shape))


if __name__ == "__main__":
    main()
