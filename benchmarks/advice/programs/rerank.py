"""Second stage of a search engine: re-scores the candidates of each query and drops near duplicates."""

import logging

import torch
import torch.nn.functional as F
from torch import nn

logger = logging.getLogger("rerank")
logging.basicConfig(level=logging.WARNING)

BOOSTS = {"news": 0.3, "shop": 0.1, "wiki": 0.2, "video": 0.15, "forum": 0.05}


class CrossScorer(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.proj = nn.Linear(dim * 3, 32)
        self.out = nn.Linear(32, 1)

    def forward(self, query, docs):
        q = query.expand_as(docs)
        features = torch.cat([q, docs, q * docs], dim=-1)
        return self.out(F.gelu(self.proj(features))).squeeze(-1)


class Reranker:
    def __init__(self, dim=16):
        self.scorer = CrossScorer(dim).eval()
        self.served = 0

    @torch.compile(backend="eager")
    def rank(self, query, docs, ids, vertical, k):
        scores = self.scorer(query, docs) + BOOSTS[vertical]
        keep = scores > scores.mean() - scores.std()
        docs, scores, ids = docs[keep], scores[keep], ids[keep]
        logger.info("query %d keeps %d documents", self.served, len(scores))
        unit = F.normalize(docs, dim=-1)
        redundancy = (unit @ unit.T).tril(-1).amax(dim=-1)
        scores = scores - 0.2 * redundancy.clamp_min(0.0)
        order = scores.argsort(descending=True)[:k]
        return ids[order], scores[order]


def traffic():
    """(vertical, candidates, results per page) of the queries of an evening."""
    yield "news", 40, 5
    yield "shop", 40, 5
    yield "wiki", 40, 5
    yield "news", 40, 5
    yield "video", 40, 5
    yield "forum", 40, 5
    yield "shop", 40, 5


def main():
    torch.manual_seed(3)
    ranker = Reranker()
    corpus = torch.randn(400, 16)
    with torch.no_grad():
        for number, (vertical, candidates, k) in enumerate(traffic()):
            picks = torch.randperm(400)[:candidates]
            best, scores = ranker.rank(torch.randn(1, 16), corpus[picks], picks, vertical, k)
            ranker.served += 1
            print(number, vertical, best.tolist(), f"{float(scores.sum()):.4f}")


if __name__ == "__main__":
    main()
