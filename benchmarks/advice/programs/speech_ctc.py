"""Train a small CTC acoustic model on utterances of different length, with SpecAugment on the fly."""

import random

import torch
import torch.nn as nn
import torch.nn.functional as F

N_MELS = 20
VOCAB = 12


class SpecAugment(nn.Module):
    """Masks one band of frequencies; the band is drawn anew for each batch."""

    def __init__(self, max_width=6):
        super().__init__()
        self.max_width = max_width
        self.rng = random.Random(3)
        self.start = 0
        self.width = 1

    def draw(self):
        self.width = self.rng.randint(1, self.max_width)
        self.start = self.rng.randint(0, N_MELS - self.width - 1)

    def forward(self, feats):
        bins = torch.arange(N_MELS, device=feats.device)
        keep = (bins < self.start) | (bins >= self.start + self.width)
        return feats * keep.to(feats.dtype)


class Acoustic(nn.Module):
    def __init__(self, hidden=24):
        super().__init__()
        self.augment = SpecAugment()
        self.subsample = nn.Conv1d(N_MELS, hidden, 3, stride=2, padding=1)
        self.blocks = nn.ModuleList(nn.Conv1d(hidden, hidden, 5, padding=2) for _ in range(2))
        self.norm = nn.LayerNorm(hidden)
        self.out = nn.Linear(hidden, VOCAB)

    def forward(self, feats, lengths):
        x = self.augment(feats).transpose(1, 2)
        x = F.silu(self.subsample(x))
        for block in self.blocks:
            x = x + F.silu(block(x))
        x = self.norm(x.transpose(1, 2))
        longest = lengths.max().item()
        if longest > 60:
            x = x * 0.5
        return self.out(x).log_softmax(-1), (lengths + 1) // 2


def make_batch(index, batch=4):
    gen = torch.Generator().manual_seed(index)
    frames = 32 + 8 * (index % 3)
    feats = torch.randn(batch, frames, N_MELS, generator=gen)
    lengths = torch.randint(frames // 2, frames + 1, (batch,), generator=gen)
    lengths[0] = frames
    targets = torch.randint(1, VOCAB, (batch, 5), generator=gen)
    return feats, lengths, targets


def main():
    torch.manual_seed(0)
    model = Acoustic()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    ctc = nn.CTCLoss(zero_infinity=True)
    compiled = torch.compile(model, backend="aot_eager")
    total = 0.0
    for step in range(6):
        feats, lengths, targets = make_batch(step)
        if step >= 2:  # the first steps warm up without augmentation
            model.augment.draw()
        log_probs, out_lengths = compiled(feats, lengths)
        loss = ctc(log_probs.transpose(0, 1), targets, out_lengths, torch.full((4,), 5))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
    print(f"mean ctc loss {total / 6:.2f}")


if __name__ == "__main__":
    main()
