"""Beam search: one compiled step of fixed shape, finished beams are masked."""
from dataclasses import dataclass

import torch
from torch import nn


@dataclass(frozen=True)
class BeamConfig:
    beams: int = 3
    max_len: int = 7
    bos: int = 1
    eos: int = 2
    vocab: int = 20
    dim: int = 16


class Decoder(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.emb = nn.Embedding(cfg.vocab, cfg.dim)
        self.cell = nn.GRUCell(cfg.dim, cfg.dim)
        self.head = nn.Linear(cfg.dim, cfg.vocab)

    def forward(self, tok, h):
        h = self.cell(self.emb(tok), h)
        return self.head(h).log_softmax(-1), h


class BeamSearch:
    def __init__(self, model, cfg):
        self.model, self.cfg = model, cfg
        self.step = torch.compile(self._step, backend="eager", fullgraph=True)

    def _step(self, tok, h, score, done):
        c = self.cfg
        logp, h = self.model(tok, h)
        only_eos = torch.full_like(logp, float("-inf"))
        only_eos[:, c.eos] = 0.0
        logp = torch.where(done[:, None], only_eos, logp)
        total = (score[:, None] + logp).view(-1)
        score, idx = total.topk(c.beams)
        parent, tok = idx // c.vocab, idx % c.vocab
        done = done[parent] | (tok == c.eos)
        return tok, h[parent], score, done, parent

    @torch.no_grad()
    def search(self, h0):
        c = self.cfg
        tok = torch.full((c.beams,), c.bos)
        h = h0.expand(c.beams, -1).contiguous()
        score = torch.tensor([0.0] + [-1e9] * (c.beams - 1))
        done = torch.zeros(c.beams, dtype=torch.bool)
        seqs = tok[:, None]
        for _ in range(c.max_len):
            tok, h, score, done, parent = self.step(tok, h, score, done)
            seqs = torch.cat([seqs[parent], tok[:, None]], 1)
            if done.all():
                break
        return seqs[score.argmax()].tolist()


torch.manual_seed(0)
cfg = BeamConfig()
bs = BeamSearch(Decoder(cfg).eval(), cfg)
for _ in range(2):
    print(bs.search(torch.randn(1, cfg.dim)))
