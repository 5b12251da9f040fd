"""Image moderation service: requests of several tenants go through one compiled pipeline."""

import time
from collections import Counter
from dataclasses import dataclass, field

import torch
import torch.nn as nn
import torch.nn.functional as F


@dataclass
class TenantPolicy:
    name: str
    threshold: float
    blocked: list[int] = field(default_factory=list)


POLICIES = {
    "acme": TenantPolicy("acme", 0.30, [0, 2]),
    "bolt": TenantPolicy("bolt", 0.25, [1]),
    "cato": TenantPolicy("cato", 0.40, [1, 3, 4]),
    "dune": TenantPolicy("dune", 0.35, [2, 3]),
}


class Stats:
    def __init__(self):
        self.served = Counter()
        self.seconds = 0.0


class Moderator(nn.Module):
    def __init__(self, classes=5):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, stride=2, padding=1)
        self.mid = nn.Conv2d(8, 16, 3, stride=2, padding=1)
        self.head = nn.Linear(16, classes)

    def forward(self, images):
        x = F.silu(self.stem(images))
        x = F.silu(self.mid(x))
        return self.head(x.mean(dim=(2, 3)))


class Service:
    def __init__(self):
        torch.manual_seed(0)
        self.model = Moderator().eval()
        self.stats = Stats()
        self.request_no = 0

    @torch.compile
    def score(self, images, policy):
        self.request_no += 1
        probs = self.model(images).softmax(-1)
        bad = probs[:, policy.blocked].sum(-1)
        return bad

    def handle(self, tenant, images):
        start = time.perf_counter()
        with torch.inference_mode():
            bad = self.score(images, POLICIES[tenant])
        self.stats.seconds += time.perf_counter() - start
        self.stats.served[tenant] += len(images)
        flagged = (bad > POLICIES[tenant].threshold).sum().item()
        return flagged, bad.mean().item()


def main():
    service = Service()
    gen = torch.Generator().manual_seed(1)
    for i, tenant in enumerate(["acme", "acme", "bolt", "cato", "dune", "bolt", "acme"]):
        images = torch.randn(4, 3, 32, 32, generator=gen)
        flagged, mean = service.handle(tenant, images)
        print(f"{i} {tenant}: {flagged} flagged, mean {mean:.3f}")
    print(dict(service.stats.served), service.request_no)


if __name__ == "__main__":
    main()
