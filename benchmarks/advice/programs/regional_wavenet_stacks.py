"""A WaveNet-style vocoder: stacks of dilated residual layers, each layer compiled on its own, with a speaker embedding."""

import torch
import torch.nn.functional as F
from torch import nn


class ResidualLayer(nn.Module):
    def __init__(self, channels, dilation, speaker_dim=None):
        super().__init__()
        self.dilation = dilation
        self.weight = nn.Parameter(torch.randn(2 * channels, channels, 2) * 0.2)
        self.speaker_proj = nn.Linear(speaker_dim, channels) if speaker_dim else None
        self.skip = nn.Conv1d(channels, channels, kernel_size=1)

    def forward(self, x, speaker):
        if self.speaker_proj is not None:
            x = x + self.speaker_proj(speaker).unsqueeze(-1)
        padded = F.pad(x, (self.dilation, 0))
        filtered, gate = F.conv1d(padded, self.weight, dilation=self.dilation).chunk(2, dim=1)
        hidden = torch.tanh(filtered) * torch.sigmoid(gate)
        return x + hidden, self.skip(hidden)


class Vocoder(nn.Module):
    def __init__(self, channels=8, stacks=3, depth=4, speaker_dim=6, speakers=5):
        super().__init__()
        self.speakers = nn.Embedding(speakers, speaker_dim)
        self.stem = nn.Conv1d(1, channels, kernel_size=1)
        self.stacks = nn.ModuleList(
            nn.ModuleList(ResidualLayer(channels, 2**i, speaker_dim if stack == 0 and i == 0 else None) for i in range(depth))
            for stack in range(stacks)
        )
        self.head = nn.Conv1d(channels, 1, kernel_size=1)

    def compile_layers(self, **options):
        for stack in self.stacks:
            for layer in stack:
                layer.compile(**options)

    def forward(self, audio, speaker_id):
        speaker = self.speakers(speaker_id)
        x = self.stem(audio)
        skips = torch.zeros_like(x)
        for stack in self.stacks:
            for layer in stack:
                x, skip = layer(x, speaker)
                skips = skips + skip
        return self.head(torch.relu(skips))


def main():
    torch.manual_seed(0)
    vocoder = Vocoder().eval()
    vocoder.compile_layers(backend="eager", fullgraph=True)
    audio = torch.sin(torch.arange(64) * 0.3).reshape(1, 1, 64).repeat(2, 1, 1)
    with torch.no_grad():
        for speaker_id in ([0, 1], [2, 3], [4, 0]):
            out = vocoder(audio, torch.tensor(speaker_id))
            print(speaker_id, f"{out.mean().item():.4f} {out.std().item():.4f}")


if __name__ == "__main__":
    main()
