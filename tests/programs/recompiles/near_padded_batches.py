"""Sentences differ in length, but the eager collate function pads them all to one size before the compiled call."""
import torch
from torch import nn

MAX_LEN = 12


def collate(sentences):
    batch = torch.zeros(len(sentences), MAX_LEN, dtype=torch.long)
    for row, sentence in enumerate(sentences):
        batch[row, : len(sentence)] = sentence
    return batch


torch.manual_seed(0)
encoder = nn.Sequential(nn.Embedding(30, 8), nn.Linear(8, 8), nn.Tanh())
encode = torch.compile(encoder, backend="eager")
for longest in (5, 12, 8):
    sentences = [torch.randint(1, 30, (longest - i,)) for i in range(3)]
    encode(collate(sentences)).sum()
