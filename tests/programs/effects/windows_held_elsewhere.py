"""Full deques that a function reaches in other ways than as an argument: closures, records, class attributes, loops, breaks."""
import collections
import dataclasses
import typing

import torch

deque = collections.deque
compiled = torch.compile(backend="eager")


def full():
    return deque([1, 2, 3], maxlen=3)


@dataclasses.dataclass
class Episode:
    rewards: deque = dataclasses.field(default_factory=full)
    length: int = 0

    def receive(self, reward):
        self.rewards.appendleft(reward)  # DX802
        self.length += 1


class Slots:
    __slots__ = ("recent",)

    def __init__(self):
        self.recent = full()


class Pair(typing.NamedTuple):
    recent: deque
    name: str


class Registry:
    recent = full()

    @property
    def newest(self):
        return self.recent


class Norm(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.recent = full()


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = Norm()
        self.layers = torch.nn.ModuleList([Norm(), Norm()])

    def forward(self, x):
        self.norm.recent.appendleft(1)  # DX802
        for layer in self.layers:
            layer.recent.appendleft(2)  # DX802
        return x * 2


@compiled
def in_a_dataclass(episode, x):
    episode.receive(5)
    return x + 1


@compiled
def in_slots(held, x):
    held.recent.appendleft(5)  # DX802
    return x + 2


@compiled
def in_a_named_tuple(pair, x):
    pair.recent.appendleft(5)  # DX802
    return x + 3


@compiled
def of_a_class(x):
    Registry.recent.appendleft(5)  # DX802
    return x + 4


@compiled
def by_a_property(registry, x):
    registry.newest.insert(0, registry.newest.pop())
    registry.newest.appendleft(5)  # DX802
    return x + 5


@compiled
def by_name(x, *, recent):
    recent.appendleft(5)  # DX802
    return x + 6


@compiled
def each(windows, x):
    for window in windows:
        window.appendleft(5)  # DX802
    return x + 7


@compiled
def in_a_default_dict(windows, x):
    windows["loss"].appendleft(5)  # DX802
    return x + 8


@compiled
def by_getattr(held, x):
    getattr(held, "recent").appendleft(5)  # DX802
    return x + 9


@compiled
def by_a_bound_method(window, x):
    push = window.appendleft
    push(5)  # DX802
    return x + 10


@compiled
def in_finally(window, x):
    try:
        x = x + 11
    finally:
        window.appendleft(5)  # DX802
    return x


@compiled
def before_a_break(window, x):
    window.appendleft(5)  # DX802
    torch._dynamo.graph_break()  # DX216
    return x + 12


@compiled
def in_one_branch(window, x):
    if x.shape[0] == 2:
        window.appendleft(5)  # DX802
    else:
        window.append(5)
    return x + 13


def maker():
    window = full()

    def push(value):
        window.appendleft(value)  # DX802

    @compiled
    def closure(x):
        push(5)
        return x + 14

    return closure


x = torch.ones(2)
in_a_dataclass(Episode(), x)
in_slots(Slots(), x)
in_a_named_tuple(Pair(full(), "loss"), x)
of_a_class(x)
by_a_property(Registry(), x)
by_name(x, recent=full())
each([full(), full()], x)
in_a_default_dict(collections.defaultdict(full, loss=full()), x)
by_getattr(Slots(), x)
by_a_bound_method(full(), x)
in_finally(full(), x)
before_a_break(full(), x)
in_one_branch(full(), x)
maker()(x)
torch.compile(Net(), backend="eager")(x)
