"""Seq2seq with GRU; greedy decoding that stops at EOS."""
import torch
from torch import nn

EOS = 2
BOS = 1


class Seq2Seq(nn.Module):
    def __init__(self, vocab=30, dim=16):
        super().__init__()
        self.emb = nn.Embedding(vocab, dim)
        self.enc = nn.Linear(dim, dim)
        self.cell = nn.GRUCell(dim, dim)
        self.head = nn.Linear(dim, vocab)

    def encode(self, src):
        return torch.tanh(self.enc(self.emb(src)).mean(1))

    def step(self, tok, h):
        h = self.cell(self.emb(tok), h)
        return self.head(h), h


@torch.compile(backend="eager")
def minibatches(src, size):  # DX207
    for part in src.split(size):
        yield part.clamp(min=3)


class GreedyDecoder:
    def __init__(self, model, max_len=5):
        self.model = model
        self.max_len = max_len
        self.fast = torch.compile(self.advance, backend="eager")

    def advance(self, tok, h, done):
        logits, h = self.model.step(tok, h)
        nxt = logits.argmax(-1)
        nxt = torch.where(done, torch.full_like(nxt, EOS), nxt)
        done = done | (nxt == EOS)
        if done.all():  # DX203
            return nxt, h, done, True
        return nxt, h, done, False

    @torch.no_grad()
    def decode(self, src):
        h = self.model.encode(src)
        tok = torch.full((src.size(0),), BOS)
        done = torch.zeros(src.size(0), dtype=torch.bool)
        outs = []
        for _ in range(self.max_len):
            tok, h, done, stop = self.fast(tok, h, done)
            outs.append(tok)
            if stop:
                break
        return torch.stack(outs, 1)


torch.manual_seed(3)
model = Seq2Seq().eval()
dec = GreedyDecoder(model)
data = torch.randint(0, 30, (8, 6))
for part in minibatches(data, 4):
    out = dec.decode(part)
    print("decoded", tuple(out.shape))
