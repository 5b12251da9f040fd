"""Log-mel features and a keyword classifier for padded batches of recordings of different lengths."""

import math

import torch
from torch import nn


def mel_filterbank(n_mels, n_fft, sample_rate):
    top = 2595 * math.log10(1 + sample_rate / 2 / 700)
    edges = 700 * (10 ** (torch.linspace(0, top, n_mels + 2) / 2595) - 1)
    bins = torch.linspace(0, sample_rate / 2, n_fft // 2 + 1)
    rising = (bins[None] - edges[:-2, None]) / (edges[1:-1] - edges[:-2])[:, None]
    falling = (edges[2:, None] - bins[None]) / (edges[2:] - edges[1:-1])[:, None]
    return torch.minimum(rising, falling).clamp(min=0)


class LogMel(nn.Module):
    def __init__(self, n_fft=256, hop=128, n_mels=20, sample_rate=8000):
        super().__init__()
        self.n_fft = n_fft
        self.hop = hop
        self.register_buffer("window", torch.hann_window(n_fft))
        self.register_buffer("mel", mel_filterbank(n_mels, n_fft, sample_rate))

    def forward(self, waveform):
        spectrum = torch.stft(waveform, self.n_fft, self.hop, window=self.window, center=False, return_complex=True)
        return torch.log(self.mel @ spectrum.abs().square() + 1e-6)


class KeywordSpotter(nn.Module):
    def __init__(self, n_mels=20, width=32, num_keywords=5):
        super().__init__()
        self.features = LogMel(n_mels=n_mels)
        self.conv = nn.Conv1d(n_mels, width, 3, padding=1)
        self.head = nn.Linear(width, num_keywords)

    def forward(self, waveform, lengths):
        mel = self.features(waveform)
        steps = (lengths - self.features.n_fft) // self.features.hop + 1
        mask = (torch.arange(mel.size(2)) < steps.unsqueeze(1)).unsqueeze(1)
        hidden = torch.relu(self.conv(mel)) * mask
        return self.head(hidden.sum(dim=-1) / mask.sum(dim=-1))


def collate(recordings):
    lengths = torch.tensor([len(each) for each in recordings])
    waveform = nn.utils.rnn.pad_sequence(recordings, batch_first=True)
    return waveform, lengths


def main():
    torch.manual_seed(0)
    model = KeywordSpotter().eval()
    spot = torch.compile(model, backend="aot_eager", fullgraph=True, dynamic=True)
    with torch.no_grad():
        for batch, size in enumerate([4, 4, 4, 3]):
            seconds = 0.3 + 0.5 * torch.rand(size)
            waveform, lengths = collate([0.1 * torch.randn(int(8000 * each)) for each in seconds])
            scores = spot(waveform, lengths).softmax(dim=-1)
            print(f"batch {batch} best {scores.argmax(dim=-1).tolist()} {scores.max().item():.4f}")


if __name__ == "__main__":
    main()
