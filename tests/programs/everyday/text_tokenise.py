"""A text classifier which tokenises its strings in forward."""
import re
import zlib

import torch
from torch import nn

WORD = re.compile(r"[a-z]+|[0-9]+")


class HashTokenizer:
    def __init__(self, buckets=100, max_len=6):
        self.buckets = buckets
        self.max_len = max_len

    def __call__(self, text):
        ids = []
        for w in text.lower().split():
            ids.append(zlib.crc32(w.encode()) % self.buckets)  # DX204
        ids = ids[: self.max_len]
        return ids + [0] * (self.max_len - len(ids))


class TextClassifier(nn.Module):
    def __init__(self, tok, dim=16, classes=3):
        super().__init__()
        self.tok = tok
        self.emb = nn.EmbeddingBag(tok.buckets, dim)
        self.head = nn.Linear(dim, classes)

    def forward(self, text):
        ids = torch.tensor([self.tok(text)])
        return self.head(self.emb(ids))


def scorer(head, emb):
    @torch.compile(backend="eager")
    def score(ids, mode):
        h = emb(ids)
        if mode == "max":  # DX114
            h = h.max(1, keepdim=True).values
        return head(torch.tanh(h).expand(-1, 16))

    return score


torch.manual_seed(0)
tok = HashTokenizer()
net = TextClassifier(tok)
fwd = torch.compile(net, backend="eager")
print(fwd("the quick brown fox").argmax(-1).item())
score = scorer(net.head, net.emb)
batch = torch.tensor([tok("jumps over the lazy dog")])
for mode in ("mean", "max"):
    print(mode, score(batch, mode).shape)
