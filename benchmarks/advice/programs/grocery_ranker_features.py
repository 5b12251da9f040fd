"""Ranks groceries for shoppers: sparse ids, an optional history of purchases, and a tower for each market."""
from dataclasses import dataclass

import torch
from torch import nn


@dataclass
class Basket:
    user: torch.Tensor
    items: torch.Tensor
    dense: dict
    history: torch.Tensor | None = None


class Tower(nn.Module):
    def __init__(self, inputs):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(inputs, 24), nn.ReLU(), nn.Linear(24, 1))

    def forward(self, x):
        return self.net(x).squeeze(-1)


class Ranker(nn.Module):
    def __init__(self, users=50, items=80, dim=12):
        super().__init__()
        self.users = nn.Embedding(users, dim)
        self.items = nn.Embedding(items, dim)
        self.dense = nn.ModuleDict({"price": nn.Linear(1, dim), "season": nn.Linear(4, dim)})
        self.towers = nn.ModuleDict({"north": Tower(2 * dim), "south": Tower(2 * dim), "island": Tower(2 * dim)})

    def taste(self, basket):
        who = self.users(basket.user)
        if basket.history is not None:
            who = who + self.items(basket.history).mean(1)
        return who

    def forward(self, basket, market):
        who = self.taste(basket)
        what = self.items(basket.items)
        for name, value in basket.dense.items():
            what = what + self.dense[name](value).unsqueeze(1)
        pair = torch.cat([who.unsqueeze(1).expand_as(what), what], -1)
        return self.towers[market](pair)


def requests(count):
    for number in range(count):
        user = torch.randint(50, (6,))
        items = torch.randint(80, (6, 10))
        dense = {"price": torch.rand(6, 1), "season": torch.rand(6, 4)}
        market = ("north", "north", "north", "south", "south", "island")[number % 6]
        history = torch.randint(80, (6, 5)) if number in (1, 6, 7) else None
        yield Basket(user, items, dense, history), market


torch.manual_seed(4)
ranker = Ranker().eval()
compiled = torch.compile(ranker, backend="eager")
with torch.no_grad():
    for number, (basket, market) in enumerate(requests(9)):
        scores = compiled(basket, market)
        first = scores[0].argsort(descending=True)[:3]
        print(number, market, basket.items[0, first].tolist(), f"{scores.mean():.3f}")
