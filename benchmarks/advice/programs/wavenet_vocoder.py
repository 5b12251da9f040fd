"""Synthesises a few frames with a WaveNet vocoder whose residual blocks are compiled one by one (regional compilation)."""

import math

import torch
from torch import nn


class ResidualBlock(nn.Module):
    def __init__(self, channels, mel_channels, dilation, kernel_size=2):
        super().__init__()
        self.dilation = dilation
        self.kernel_size = kernel_size
        self.weight = nn.Parameter(torch.randn(2 * channels, channels, kernel_size) / math.sqrt(channels * kernel_size))
        self.cond = nn.Conv1d(mel_channels, 2 * channels, 1)
        self.res = nn.Conv1d(channels, channels, 1)
        self.skip = nn.Conv1d(channels, channels, 1)

    def forward(self, x, mel):
        h = nn.functional.pad(x, (self.dilation * (self.kernel_size - 1), 0))
        h = nn.functional.conv1d(h, self.weight, dilation=self.dilation) + self.cond(mel)
        filt, gate = h.chunk(2, 1)
        h = torch.tanh(filt) * torch.sigmoid(gate)
        return (x + self.res(h)) * math.sqrt(0.5), self.skip(h)


class WaveNet(nn.Module):
    def __init__(self, channels=16, mel_channels=8, layers=10, stacks=1, bins=64):
        super().__init__()
        self.bins = bins
        self.front = nn.Conv1d(1, channels, 1)
        self.blocks = nn.ModuleList(
            ResidualBlock(channels, mel_channels, dilation=2**layer) for _ in range(stacks) for layer in range(layers)
        )
        self.post = nn.Sequential(nn.ReLU(), nn.Conv1d(channels, channels, 1), nn.ReLU(), nn.Conv1d(channels, bins, 1))

    def forward(self, wav, mel):
        x = self.front(wav)
        skips = 0
        for block in self.blocks:
            x, skip = block(x, mel)
            skips = skips + skip
        return self.post(skips * math.sqrt(1.0 / len(self.blocks)))


def mu_law_decode(codes, bins):
    y = 2 * codes.float() / (bins - 1) - 1
    return torch.sign(y) * ((bins ** y.abs()) - 1) / (bins - 1)


def compile_repeated_blocks(model, **options):
    for block in model.blocks:
        block.compile(**options)
    return model


def main():
    torch.manual_seed(0)
    vocoder = compile_repeated_blocks(WaveNet().eval(), backend="eager")
    with torch.inference_mode():
        mel = torch.randn(1, 8, 2048)
        wav = torch.zeros(1, 1, 2048)
        for sweep in range(3):
            logits = vocoder(wav, mel)
            codes = logits.argmax(1, keepdim=True)
            wav = torch.roll(mu_law_decode(codes, vocoder.bins), 1, dims=-1)
            print(f"sweep {sweep}: rms {wav.square().mean().sqrt():.4f} top code {codes.flatten().bincount().argmax().item()}")


if __name__ == "__main__":
    main()
