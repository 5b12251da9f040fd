"""A text moderation service: requests arrive in micro-batches, are scored by a small compiled classifier."""

import enum
import logging
from dataclasses import dataclass

import torch
from torch import nn

logging.basicConfig(level=logging.WARNING)
logger = logging.getLogger("moderation")
LABELS = ("ok", "spam", "abuse", "selfharm")


class Tier(enum.Enum):
    FREE = "free"
    PRO = "pro"
    ENTERPRISE = "enterprise"


STRICTNESS = {"free": 1.5, "pro": 1.0, "enterprise": 0.6}


@dataclass
class Request:
    texts: list[str]
    tier: Tier
    threshold: float


class Hasher:
    """Hashed words, no vocabulary needed."""

    def __init__(self, buckets, length):
        self.buckets, self.length = buckets, length

    def __call__(self, texts):
        rows = []
        for text in texts:
            ids = [1 + sum(map(ord, word)) * 31 % (self.buckets - 1) for word in text.lower().split()][: self.length]
            rows.append(ids + [0] * (self.length - len(ids)))
        return torch.tensor(rows)


class Classifier(nn.Module):
    def __init__(self, buckets, dim, labels):
        super().__init__()
        self.embed = nn.Embedding(buckets, dim, padding_idx=0)
        self.net = nn.Sequential(nn.Linear(dim, 64), nn.ReLU(), nn.Linear(64, labels))

    def forward(self, ids):
        mask = (ids != 0).unsqueeze(-1)
        mean = (self.embed(ids) * mask).sum(1) / mask.sum(1).clamp(min=1)
        return self.net(mean)


class Service:
    def __init__(self, model, hasher):
        self.model = model.eval()
        self.hasher = hasher
        self.score = torch.compile(self._score)

    def _score(self, ids, tier, threshold):
        logits = self.model(ids) * STRICTNESS[tier.value]
        probs = logits.softmax(-1)
        logger.debug("scored a batch for %s", tier)
        flagged = probs[:, 1:].sum(-1) > threshold
        return probs, flagged

    def warm_up(self):
        self.score(self.hasher(["hello there", "good morning"]), Tier.FREE, 0.7)

    @torch.inference_mode()
    def handle(self, request):
        ids = self.hasher(request.texts)
        probs, flagged = self.score(ids, request.tier, request.threshold)
        return [(LABELS[row.argmax()], bool(flag)) for row, flag in zip(probs, flagged)]


def main():
    torch.manual_seed(0)
    service = Service(Classifier(512, 32, len(LABELS)), Hasher(512, 12))
    service.warm_up()
    traffic = [
        Request(["win a free prize now", "see you at lunch"], Tier.FREE, 0.7),
        Request(["the report is attached", "buy cheap pills online"], Tier.PRO, 0.7),
        Request(["you are a horrible person", "thanks a lot"], Tier.ENTERPRISE, 0.7),
        Request(["what time is it", "limited offer inside"], Tier.PRO, 0.7),
    ]
    for request in traffic:
        print(request.tier.value, service.handle(request))


if __name__ == "__main__":
    main()
