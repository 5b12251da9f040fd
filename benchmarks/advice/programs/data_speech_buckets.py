"""Encoding utterances of different lengths in buckets, with the true lengths of each batch given as a list."""

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Sampler

BUCKETS = (16, 24, 32)


class Utterances(Dataset):
    def __init__(self, count=36, mels=8):
        self.lengths = [9 + (i * 7) % 23 for i in range(count)]
        self.frames = [torch.sin(torch.arange(n * mels).reshape(n, mels) * 0.01 * (i + 1)) for i, n in enumerate(self.lengths)]

    def __len__(self):
        return len(self.frames)

    def __getitem__(self, index):
        return self.frames[index]


class BucketSampler(Sampler):
    def __init__(self, lengths, batch_size):
        self.batches = []
        for low, high in zip((0,) + BUCKETS, BUCKETS):
            members = [i for i, n in enumerate(lengths) if low < n <= high]
            self.batches += [members[i : i + batch_size] for i in range(0, len(members) - batch_size + 1, batch_size)]

    def __len__(self):
        return len(self.batches)

    def __iter__(self):
        return iter(self.batches)


def collate(frames):
    lengths = [len(each) for each in frames]
    bucket = min(size for size in BUCKETS if size >= max(lengths))
    padded = torch.zeros(len(frames), bucket, frames[0].shape[1])
    for row, each in enumerate(frames):
        padded[row, : len(each)] = each
    return padded, lengths


class SpeechEncoder(nn.Module):
    def __init__(self, mels=8, dim=12):
        super().__init__()
        self.subsample = nn.Conv1d(mels, dim, kernel_size=3, padding=1)
        self.proj = nn.Linear(dim, 4)

    def forward(self, features, lengths):
        hidden = torch.relu(self.subsample(features.transpose(1, 2))).transpose(1, 2)
        pooled = [hidden[row, :length].mean(dim=0) for row, length in enumerate(lengths)]
        return self.proj(torch.stack(pooled))


def main():
    torch.manual_seed(0)
    dataset = Utterances()
    loader = DataLoader(dataset, batch_sampler=BucketSampler(dataset.lengths, batch_size=3), collate_fn=collate)
    encoder = torch.compile(SpeechEncoder().eval(), backend="eager", dynamic=False)
    with torch.no_grad():
        for features, lengths in loader:
            embedding = encoder(features, lengths)
            print(tuple(features.shape), f"{embedding.sum().item():.4f}")


if __name__ == "__main__":
    main()
