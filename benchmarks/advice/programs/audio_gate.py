"""Streaming noise gate: frames come from a microphone, a ring buffer of past spectra gives the noise floor."""

import numpy as np
import torch
from torch import nn

FRAME = 256


class SpectrumHistory(nn.Module):
    """The magnitudes of the last frames, overwritten in turn."""

    def __init__(self, frames, bins):
        super().__init__()
        self.register_buffer("spectra", torch.full((frames, bins), 2.0))
        self.frames = frames
        self.pos = 0

    def push(self, magnitude):
        self.spectra[self.pos] = magnitude
        self.pos = (self.pos + 1) % self.frames
        return self.spectra.amin(0)


class NoiseGate(nn.Module):
    def __init__(self, frames=6, reduction=0.8):
        super().__init__()
        bins = FRAME // 2 + 1
        self.history = SpectrumHistory(frames, bins)
        self.smooth = nn.Conv1d(1, 1, 5, padding=2, bias=False)
        nn.init.constant_(self.smooth.weight, 0.2)
        self.reduction = reduction

    def analysis(self, packet):
        frame = torch.frombuffer(packet, dtype=torch.int16).float() / 32768
        window = torch.from_numpy(np.hanning(FRAME)).float()
        spectrum = torch.view_as_real(torch.fft.rfft(frame * window))
        return spectrum, spectrum.square().sum(-1).sqrt()

    @torch.no_grad()
    def forward(self, packet):
        spectrum, magnitude = self.analysis(packet)
        floor = self.smooth(self.history.push(magnitude)[None, None])[0, 0]
        gain = (1 - self.reduction * floor / (magnitude + 1e-4)).clamp(0.05, 1.0)
        cleaned = spectrum * gain[:, None]
        return cleaned, 20 * torch.log10(gain.mean())


def microphone(frames):
    """Packets of 16-bit samples, as a sound card delivers them."""
    gen = torch.Generator().manual_seed(5)
    time = torch.arange(frames * FRAME) / 8000
    tone = torch.sin(2 * torch.pi * 440 * time) * (time > 0.1)
    signal = 0.5 * tone + 0.05 * torch.randn(time.shape, generator=gen)
    for frame in signal.split(FRAME):
        yield bytearray((frame.clamp(-1, 1) * 32767).short().numpy().tobytes())


def main():
    torch.manual_seed(0)
    gate = torch.compile(NoiseGate())
    levels = []
    for packet in microphone(8):
        cleaned, decibel = gate(packet)
        levels.append(decibel)
    print("gate in dB:", [round(level.item(), 2) for level in levels])
    print("energy of the last frame:", f"{cleaned.square().sum().item():.1f}")


if __name__ == "__main__":
    main()
