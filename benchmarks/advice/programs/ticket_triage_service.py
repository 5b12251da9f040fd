"""Answers support tickets: a classifier behind a queue, with priorities, a log line per request and a confidence gate."""
import enum
import logging
import sys
from collections import deque
from dataclasses import dataclass

import torch
from torch import nn

logging.basicConfig(stream=sys.stdout, level=logging.INFO, format="%(message)s")
log = logging.getLogger("triage")


class Priority(enum.Enum):
    BULK = 0
    NORMAL = 1
    URGENT = 2


@dataclass
class Ticket:
    number: int
    tokens: list
    priority: Priority


class Triage(nn.Module):
    def __init__(self, vocabulary=100, dim=24, teams=6):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, dim, padding_idx=0)
        self.mix = nn.ModuleList(nn.Linear(dim, dim) for _ in range(3))
        self.head = nn.Linear(dim, teams)

    def depth(self, priority):
        """Bulk tickets get a shallow pass."""
        return 1 if priority is Priority.BULK else 2 if priority is Priority.NORMAL else 3

    def forward(self, tokens, priority):
        log.info("batch of %d tickets", len(tokens))
        mask = (tokens != 0).unsqueeze(-1)
        x = (self.embed(tokens) * mask).sum(1) / mask.sum(1)
        for layer in self.mix[: self.depth(priority)]:
            x = x + torch.tanh(layer(x))
        return self.head(x).softmax(-1)


def collate(tickets):
    longest = max(len(ticket.tokens) for ticket in tickets)
    rows = [ticket.tokens + [0] * (longest - len(ticket.tokens)) for ticket in tickets]
    return torch.tensor(rows)


def arrivals():
    generator = torch.Generator().manual_seed(3)
    order = [Priority.NORMAL] * 8 + [Priority.URGENT] * 2 + [Priority.BULK] * 4
    for number, priority in enumerate(order):
        length = 12 if priority is not Priority.NORMAL else 7 + 5 * (number // 4)
        yield Ticket(number, torch.randint(1, 100, (length,), generator=generator).tolist(), priority)


torch.manual_seed(0)
model = Triage().eval()
classify = torch.compile(model, backend="eager")
waiting = deque(arrivals())
with torch.no_grad():
    while waiting:
        batch = [waiting.popleft(), waiting.popleft()]
        scores = classify(collate(batch), batch[0].priority)
        best, team = scores.max(-1)
        for ticket, confidence, where in zip(batch, best.tolist(), team.tolist()):
            log.info("ticket %d %s to team %d (%.3f)", ticket.number, ticket.priority.name, where, confidence)
