"""Streaming keyword spotting: audio arrives in chunks, a GRU keeps its state between them."""

import math

import torch
from torch import nn

RATE = 8000


class LogMel(nn.Module):
    def __init__(self, n_fft=256, hop=80, mels=20):
        super().__init__()
        self.n_fft, self.hop = n_fft, hop
        self.register_buffer("window", torch.hann_window(n_fft))
        self.register_buffer("filters", self.triangles(n_fft // 2 + 1, mels))

    @staticmethod
    def triangles(bins, mels):
        centers = torch.linspace(0, bins - 1, mels + 2)
        grid = torch.arange(bins).unsqueeze(1)
        up = (grid - centers[:-2]) / (centers[1:-1] - centers[:-2])
        down = (centers[2:] - grid) / (centers[2:] - centers[1:-1])
        return torch.minimum(up, down).clamp(min=0)

    def forward(self, audio):
        frames = audio.unfold(-1, self.n_fft, self.hop) * self.window
        power = torch.fft.rfft(frames).abs().square()
        return torch.log(power @ self.filters + 1e-5)


class Spotter(nn.Module):
    def __init__(self, mels=20, hidden=32, words=6):
        super().__init__()
        self.front = LogMel(mels=mels)
        self.norm = nn.LayerNorm(mels)
        self.rnn = nn.GRU(mels, hidden, batch_first=True)
        self.head = nn.Linear(hidden, words)

    def forward(self, audio, state=None):
        features = self.norm(self.front(audio))
        y, state = self.rnn(features, state)
        return self.head(y).log_softmax(-1), state


class Endpointer:
    """Decides when an utterance is over: after `patience` chunks in a row that are quiet."""

    def __init__(self, floor_db, patience):
        self.floor_db = floor_db
        self.patience = patience
        self.quiet = 0

    def __call__(self, audio):
        level = 10 * torch.log10(audio.square().mean() + 1e-10)
        if level < self.floor_db:
            self.quiet += 1
        else:
            self.quiet = 0
        return self.quiet >= self.patience


def utterance(seconds, pitch, seed):
    """A tone with vibrato, then half a second of faint noise."""
    generator = torch.Generator().manual_seed(seed)
    time = torch.arange(int(seconds * RATE)) / RATE
    tone = 0.4 * torch.sin(2 * math.pi * pitch * time + torch.sin(30 * time))
    silence = 0.0005 * torch.randn(RATE // 2, generator=generator)
    return torch.cat([tone, silence]).unsqueeze(0)


@torch.inference_mode()
def listen(step, endpoint, audio, chunk):
    state, best = None, []
    for start in range(0, audio.shape[1], chunk):
        piece = audio[:, start : start + chunk]
        log_probs, state = step(piece, state)
        best.append(int(log_probs.mean(1).argmax()))
        if endpoint(piece):
            break
    return best


def main():
    torch.manual_seed(0)
    model = Spotter().eval()
    step = torch.compile(model, backend="aot_eager")
    for number, (seconds, pitch) in enumerate([(0.5, 220.0), (0.75, 330.0), (0.4, 180.0)]):
        endpoint = torch.compile(Endpointer(floor_db=-50.0, patience=2), backend="aot_eager")
        print(number, listen(step, endpoint, utterance(seconds, pitch, number), chunk=1600))


if __name__ == "__main__":
    main()
