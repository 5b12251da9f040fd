"""Two-stage pipeline with worker threads; each stage has one compiled model."""
import queue
import threading

import torch
from torch import nn


class Stage(threading.Thread):
    def __init__(self, name, model, inbox, outbox):
        super().__init__(name=name, daemon=True)
        self.fn = torch.compile(model, backend="eager")
        self.inbox, self.outbox = inbox, outbox
        self.done = 0

    def run(self):
        with torch.no_grad():
            while True:
                item = self.inbox.get()
                if item is None:
                    self.outbox.put(None)
                    return
                key, x = item
                self.outbox.put((key, self.fn(x)))
                self.done += 1


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(12, 16), nn.ReLU())

    def forward(self, x):
        return self.net(x)


class Scorer(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.randn(16))

    def forward(self, h):
        return torch.sigmoid(h @ self.w)


def main():
    torch.manual_seed(0)
    a, b, c = queue.Queue(2), queue.Queue(2), queue.Queue()
    stages = [Stage("encode", Encoder(), a, b), Stage("score", Scorer(), b, c)]
    for s in stages:
        s.start()
    for i in range(6):
        a.put((f"item-{i}", torch.randn(4, 12)))
    a.put(None)
    results = {}
    while (item := c.get()) is not None:
        key, score = item
        results[key] = score.mean().item()
    for s in stages:
        s.join()
    print(len(results), [s.done for s in stages])


main()
