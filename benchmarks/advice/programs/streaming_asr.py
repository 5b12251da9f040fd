"""Transcribes a simulated microphone stream chunk by chunk with a cached-attention encoder."""

import math

import torch
import torch.nn.functional as F
from torch import nn

VOCAB = ["_", *"abcdefghijklmnopqrstuvwxyz' "]


class StreamingLayer(nn.Module):
    def __init__(self, dim, heads, left_context):
        super().__init__()
        self.heads = heads
        self.left_context = left_context
        self.qkv = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, dim)
        self.ffn = nn.Sequential(nn.LayerNorm(dim), nn.Linear(dim, 2 * dim), nn.SiLU(), nn.Linear(2 * dim, dim))

    def forward(self, x, cache):
        batch, frames, dim = x.shape
        q, k, v = (part.view(batch, frames, self.heads, -1).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))
        if cache is not None:
            k = torch.cat((cache[0], k), 2)
            v = torch.cat((cache[1], v), 2)
        out = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(batch, frames, dim)
        x = x + self.proj(out)
        return x + self.ffn(x), (k[:, :, -self.left_context :].contiguous(), v[:, :, -self.left_context :].contiguous())


class StreamingEncoder(nn.Module):
    def __init__(self, mels=20, dim=32, layers=2, left_context=16):
        super().__init__()
        self.subsample = nn.Conv1d(mels, dim, 3, 2, 1)
        self.layers = nn.ModuleList(StreamingLayer(dim, 4, left_context) for _ in range(layers))
        self.head = nn.Linear(dim, len(VOCAB))
        self.dim = dim

    def positions(self, offset, frames):
        pos = torch.arange(frames) + offset
        freq = torch.exp(torch.arange(0, self.dim, 2) * (-math.log(10000.0) / self.dim))
        angle = pos[:, None] * freq
        return torch.cat((angle.sin(), angle.cos()), 1)

    def forward(self, chunk, caches, offset):
        x = self.subsample(chunk).transpose(1, 2)
        x = x + self.positions(offset, x.shape[1])
        new_caches = []
        for layer, cache in zip(self.layers, caches):
            x, cache = layer(x, cache)
            new_caches.append(cache)
        return self.head(x).log_softmax(-1), new_caches


class Recognizer:
    def __init__(self, encoder):
        self.encoder = torch.compile(encoder, backend="eager")
        self.layers = len(encoder.layers)
        self.reset()

    def reset(self):
        self.caches = [None] * self.layers
        self.offset = torch.zeros((), dtype=torch.long)
        self.tokens = []

    @torch.no_grad()
    def accept(self, chunk):
        log_probs, self.caches = self.encoder(chunk, self.caches, self.offset)
        self.offset = self.offset + log_probs.shape[1]
        self.tokens += log_probs.argmax(-1)[0].tolist()

    def text(self):
        merged = [t for i, t in enumerate(self.tokens) if i == 0 or t != self.tokens[i - 1]]
        return "".join(VOCAB[t] for t in merged if t)


def main():
    torch.manual_seed(0)
    recognizer = Recognizer(StreamingEncoder().eval())
    for utterance, frames in enumerate((192, 256)):
        audio = torch.randn(1, 20, frames)
        recognizer.reset()
        for start in range(0, frames, 32):
            recognizer.accept(audio[:, :, start : start + 32])
        print(f"utterance {utterance}: {recognizer.offset} frames, {recognizer.text()!r}")


if __name__ == "__main__":
    main()
