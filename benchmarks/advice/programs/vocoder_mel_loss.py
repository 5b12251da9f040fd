"""Trains a tiny HiFi-GAN style vocoder with an L1 loss on mel spectrograms, as in the public meldataset.py."""

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

SAMPLE_RATE, N_FFT, HOP, N_MELS = 8000, 256, 64, 20
mel_basis = {}
hann_window = {}


def mel_filters(fmin, fmax):
    """Triangular filters on the HTK mel scale, shape (mels, bins)."""
    to_mel = lambda hertz: 2595.0 * np.log10(1.0 + hertz / 700.0)
    points = 700.0 * (10.0 ** (np.linspace(to_mel(fmin), to_mel(fmax), N_MELS + 2) / 2595.0) - 1.0)
    bins = np.linspace(0.0, SAMPLE_RATE / 2, N_FFT // 2 + 1)
    rising = (bins[None] - points[:-2, None]) / (points[1:-1] - points[:-2])[:, None]
    falling = (points[2:, None] - bins[None]) / (points[2:] - points[1:-1])[:, None]
    return np.maximum(0.0, np.minimum(rising, falling)).astype(np.float32)


def mel_spectrogram(y, fmin=0.0, fmax=4000.0, center=False):
    key = f"{fmax}_{y.device}"
    if key not in mel_basis:
        mel_basis[key] = torch.from_numpy(mel_filters(fmin, fmax)).to(y.device)
        hann_window[str(y.device)] = torch.hann_window(N_FFT, device=y.device)
    pad = (N_FFT - HOP) // 2
    y = F.pad(y.unsqueeze(1), (pad, pad), mode="reflect").squeeze(1)
    spec = torch.stft(y, N_FFT, HOP, N_FFT, hann_window[str(y.device)], center=center, return_complex=True)
    return torch.log(torch.clamp(mel_basis[key] @ spec.abs(), min=1e-5))


class Generator(nn.Module):
    def __init__(self, channels=32):
        super().__init__()
        self.pre = nn.Conv1d(N_MELS, channels, 7, padding=3)
        self.ups = nn.ModuleList(
            nn.ConvTranspose1d(channels >> i, channels >> (i + 1), 8, stride=4, padding=2) for i in range(3)
        )
        self.post = nn.Conv1d(channels >> 3, 1, 7, padding=3)

    def forward(self, mel):
        x = self.pre(mel)
        for up in self.ups:
            x = up(F.leaky_relu(x, 0.1))
        return torch.tanh(self.post(F.leaky_relu(x, 0.1))).squeeze(1)


def utterances(count, samples, seed):
    generator = torch.Generator().manual_seed(seed)
    time = torch.arange(samples) / SAMPLE_RATE
    pitch = 100 + 300 * torch.rand(count, 1, generator=generator)
    return 0.5 * torch.sin(2 * torch.pi * pitch * time) + 0.01 * torch.randn(count, samples, generator=generator)


def main():
    torch.manual_seed(0)
    generator = Generator()
    optimizer = torch.optim.AdamW(generator.parameters(), lr=2e-3, betas=(0.8, 0.99))

    @torch.compile(backend="aot_eager")
    def mel_l1(wave):
        target = mel_spectrogram(wave)
        return 45.0 * F.l1_loss(mel_spectrogram(generator(target)), target)

    for step in range(12):
        loss = mel_l1(utterances(4, 2048, seed=step))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if step % 4 == 3:
            print(f"step {step + 1:2d} mel loss {loss.item():.2f}")
    with torch.no_grad():
        restored = generator(mel_spectrogram(utterances(1, 2048, seed=99)))
    print("validation", tuple(restored.shape), f"{restored.abs().mean().item():.4f}")


if __name__ == "__main__":
    main()
