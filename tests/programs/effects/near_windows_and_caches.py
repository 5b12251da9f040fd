"""Mutations that compiled code repeats: appended at the right end, orders changed by pop, containers that are not subclasses."""
import collections
import dataclasses

import torch

compiled = torch.compile(backend="eager")


class History(list):
    pass


class Registry(dict):
    pass


@dataclasses.dataclass
class State:
    steps: list
    seen: set
    best: float = 0.0


class Counter(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0
        self.shapes = []
        self.by_name = collections.defaultdict(list)
        self.recent = collections.deque(maxlen=2)
        self.state = State([], set())

    def forward(self, x):
        self.calls += 1
        self.shapes.append(tuple(x.shape))
        self.by_name["x"].append(x.shape[0])
        self.recent.append(self.calls)
        self.state.steps += [self.calls]
        self.state.seen.add(x.dim())
        self.state.best = max(self.state.best, 2.0)
        return x * 2


@compiled
def used_last(cache, x):
    cache["a"] = cache.pop("a")
    return x + 1


@compiled
def appended(window, x):
    window.append(7)
    window.extend([8, 9])
    return x + 2


@compiled
def first_of(window, x):
    window.popleft()
    window.appendleft(5)
    return x + 4


@compiled
def kept(history, registry, x):
    history.append(1)
    history.extend([2, 3])
    history[0] = 5
    history.note = "seen"
    registry["a"] = x
    registry.update(b=2)
    return x + 5


@compiled
def unchanged(cache, seen, window, x):
    cache.move_to_end("c")
    seen.add(1)
    window[0] = window[0]
    return x + 6


@compiled
def only_read(history, seen, x):
    return x * len(history) + (1 if 1 in seen else 0) + sum(history)


class Tags(set):
    pass


def run(model, x):
    for _ in range(3):
        model(x)


x = torch.ones(2)
used_last(collections.OrderedDict(a=1, b=2), x)
appended(collections.deque([1, 2, 3], maxlen=3), x)
first_of(collections.deque([1, 2, 3], maxlen=3), x)
kept(History([0]), Registry(), x)
unchanged(collections.OrderedDict(a=1, b=2, c=3), {1}, collections.deque([1], maxlen=1), x)
only_read(History([1]), Tags([1]), x)
torch.compile(Counter(), backend="eager")(x)
