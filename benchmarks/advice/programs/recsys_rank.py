"""Ranking service of a shop: a two-tower model scores the catalogue for each incoming request."""

from dataclasses import dataclass, field

import torch
from torch import nn

COUNTRIES = {"de": 0, "fr": 1, "it": 2, "pl": 3, "se": 4}
ITEMS = 60


@dataclass
class Request:
    user: int
    country: str
    history: list[int] = field(default_factory=list)
    bought: list[int] = field(default_factory=list)


class TwoTower(nn.Module):
    def __init__(self, users=40, items=ITEMS, width=16):
        super().__init__()
        self.users = nn.Embedding(users, width)
        self.items = nn.Embedding(items + 1, width, padding_idx=items)
        self.country_bias = nn.Parameter(torch.randn(len(COUNTRIES), items) * 0.1)
        self.mlp = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Linear(width, width))

    def user_vector(self, features):
        vector = self.users(features["user"])
        if "history" in features:
            vector = vector + self.items(features["history"]).sum(1) / 8
        return self.mlp(vector)

    def forward(self, features, country, bought):
        scores = self.user_vector(features) @ self.items.weight[:ITEMS].T
        scores = scores + self.country_bias[COUNTRIES[country]]
        for item in bought:
            scores[:, item] = float("-inf")
        return scores.topk(5).indices


class RankingService:
    def __init__(self, model):
        self.model = model.eval()
        self.rank = torch.compile(model, backend="eager")

    def featurize(self, request):
        features = {"user": torch.tensor([request.user])}
        if request.history:
            padded = (request.history + [ITEMS] * 8)[:8]
            features["history"] = torch.tensor([padded])
        return features

    @torch.inference_mode()
    def handle(self, request):
        return self.rank(self.featurize(request), request.country, request.bought)


def traffic():
    yield Request(3, "de", [1, 5, 9])
    yield Request(7, "de", [2, 4, 8])
    yield Request(11, "de")
    yield Request(4, "fr", [30, 31])
    yield Request(8, "it", [12])
    yield Request(9, "pl", [6, 7, 44])
    yield Request(15, "de", [1, 2, 3], [29])
    yield Request(21, "de", [8, 9, 10], [40, 15])


def main():
    torch.manual_seed(1)
    service = RankingService(TwoTower())
    for request in traffic():
        top = service.handle(request)
        print(f"user {request.user:2d} ({request.country}): {top[0].tolist()}")


if __name__ == "__main__":
    main()
