"""Streaming spectral-subtraction denoiser: frames of stereo audio, a noise floor that follows the signal."""

import math

import torch
from torch import nn


class SpectralDenoiser(nn.Module):
    def __init__(self, n_fft=64, hop=32, over=1.5, floor=0.05, smooth=0.9):
        super().__init__()
        self.n_fft, self.hop = n_fft, hop
        self.over, self.floor, self.smooth = over, floor, smooth
        self.register_buffer("window", torch.hann_window(n_fft))

    def forward(self, audio, noise=None):
        frames = audio.unfold(-1, self.n_fft, self.hop) * self.window
        spectrum = torch.fft.rfft(frames)
        power = spectrum.abs().square()
        quiet = power.amin(dim=-2)
        if noise is None:
            noise = quiet
        else:
            noise = self.smooth * noise + (1 - self.smooth) * quiet
        gain = (1 - self.over * noise.unsqueeze(-2) / power.clamp(min=1e-8)).clamp(min=self.floor)
        cleaned = torch.fft.irfft(spectrum * gain, n=self.n_fft)
        return cleaned[..., : self.hop].flatten(-2), noise


class Recording:
    """Samples as (channels, time); some readers deliver interleaved samples."""

    def __init__(self, name, seconds, interleaved, seed):
        rng = torch.Generator().manual_seed(seed)
        t = torch.arange(int(seconds * 1024)) / 1024
        tone = torch.stack([torch.sin(2 * math.pi * 50 * t), torch.sin(2 * math.pi * 80 * t)], dim=1)
        interleaved_samples = tone + 0.2 * torch.randn(tone.shape, generator=rng)
        self.name = name
        self.samples = interleaved_samples.T if interleaved else interleaved_samples.T.contiguous()

    def chunks(self, size):
        for start in range(0, self.samples.shape[1] - size + 1, size):
            yield self.samples[:, start : start + size]


def clean(denoise, recording, size=512):
    noise, parts = None, []
    for chunk in recording.chunks(size):
        cleaned, noise = denoise(chunk, noise)
        parts.append(cleaned)
    return torch.cat(parts, dim=-1)


@torch.no_grad()
def main():
    denoise = torch.compile(SpectralDenoiser(), backend="aot_eager", dynamic=False)
    recordings = [
        Recording("street.wav", 2, False, seed=1),
        Recording("office.wav", 2, False, seed=2),
        Recording("studio.flac", 2, True, seed=3),
    ]
    for recording in recordings:
        result = clean(denoise, recording)
        print(recording.name, tuple(result.shape), f"{result.square().mean().item():.5f}")


if __name__ == "__main__":
    main()
