"""Speech recognition: log-mel features, a recurrent encoder and greedy CTC decoding of utterances of any length."""

import time
from contextlib import contextmanager

import torch
from torch import nn

ALPHABET = "_abcdefghijklmnopqrstuvwxyz "
timings: dict[str, float] = {}


@contextmanager
def timed(stage):
    start = time.perf_counter()
    try:
        yield
    finally:
        timings[stage] = timings.get(stage, 0.0) + time.perf_counter() - start


class Encoder(nn.Module):
    def __init__(self, mels=20, width=24):
        super().__init__()
        self.subsample = nn.Conv1d(mels, width, 3, stride=2, padding=1)
        self.rnn = nn.GRU(width, width, batch_first=True, bidirectional=True)
        self.head = nn.Linear(2 * width, len(ALPHABET))

    def forward(self, features):
        hidden = self.subsample(features).relu().transpose(1, 2)
        hidden, _ = self.rnn(hidden)
        return self.head(hidden).log_softmax(-1)


@torch.compile(backend="eager", dynamic=False)
def log_mel(wave, filters):
    """Log-mel features of a waveform, 16 samples apart."""
    frames = wave.unfold(-1, 64, 16) * torch.hann_window(64)
    power = torch.view_as_real(torch.fft.rfft(frames)).square().sum(-1)
    return (power @ filters + 1e-5).log().transpose(1, 2)


@torch.compile(backend="eager", dynamic=True)
def normalize(features):
    """Per-utterance mean and variance normalization."""
    with timed("normalize"):
        mean = features.mean(-1, keepdim=True)
        std = features.std(-1, keepdim=True)
        return (features - mean) / (std + 1e-5)


@torch.compile(backend="eager", dynamic=True)
def best_path(log_probs):
    best = log_probs[0].argmax(-1)
    text, previous = [], 0
    for label in best.tolist():
        if label != previous and label != 0:
            text.append(ALPHABET[label])
        previous = label
    return "".join(text)


class Recognizer:
    def __init__(self, encoder):
        self.encoder = torch.compile(encoder.eval(), backend="eager", dynamic=True)

        self.filters = torch.rand(33, 20, generator=torch.Generator().manual_seed(1)).square()

    @torch.no_grad()
    def transcribe(self, wave):
        features = normalize(log_mel(wave, self.filters))
        return best_path(self.encoder(features))


def utterances():
    gen = torch.Generator().manual_seed(9)
    for samples in (800, 1280, 1040, 1800, 1520):
        tone = torch.sin(torch.arange(samples) ** 1.5 / 200)
        yield tone + 0.3 * torch.randn(1, samples, generator=gen)


def main():
    torch.manual_seed(0)
    recognizer = Recognizer(Encoder())
    for wave in utterances():
        print(f"{wave.shape[-1]:4d} samples: {recognizer.transcribe(wave)!r}")
    assert "normalize" in timings


if __name__ == "__main__":
    main()
