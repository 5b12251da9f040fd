"""Subclasses of set and list: before torch 2.15, mutations of the one and in-place operators on the other are lost."""
import operator

import torch

compiled = torch.compile(backend="eager")


class Tags(set):
    pass


class Counted(set):
    def add(self, tag):
        self.added = getattr(self, "added", 0) + 1
        super().add(tag)  # DX801 [torch<2.15]


class History(list):
    pass


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.tags = Tags()
        self.log = {"steps": History()}

    def forward(self, x):
        self.tags.update(["seen", "used"])  # DX801 [torch<2.15]
        steps = self.log["steps"]
        steps += [x.shape[0]]  # DX801 [torch<2.15]
        return x * 2


@compiled
def added(tags, x):
    tags.add("a")  # DX801 [torch<2.15]
    return x + 1


@compiled
def discarded(tags, x):
    tags.discard("seen")  # DX801 [torch<2.15]
    return x + 2


@compiled
def united(tags, x):
    tags |= {"b"}  # DX801 [torch<2.15]
    return x + 3


@compiled
def cleared(tags, x):
    tags.clear()  # DX801 [torch<2.15]
    return x + 4


@compiled
def popped(tags, x):
    tags.pop()  # DX801 [torch<2.15]
    return x + 5


@compiled
def in_an_override(tags, x):
    tags.add("c")
    return x + 6


@compiled
def extended(history, x):
    history += [1]  # DX801 [torch<2.15]
    return x + 7


@compiled
def by_operator(history, x):
    operator.iadd(history, [2])  # DX801 [torch<2.15]
    return x + 8


@compiled
def by_method(history, x):
    history.__iadd__([3])  # DX801 [torch<2.15]
    return x + 9


@compiled
def made_here(x):
    return Tags(["new"]), x + 10  # DX801 [torch<2.15]


@compiled
def made_and_filled(x):
    tags = Tags()  # DX801 [torch<2.15]
    tags.add("new")
    return tags, x + 11


def helper(history):
    history += [4]  # DX801 [torch<2.15]


@compiled
def in_a_helper(history, x):
    helper(history)
    return x + 12


@compiled
def after_a_break(tags, x):
    torch._dynamo.graph_break()  # DX216
    tags.add("late")  # DX801 [torch<2.15]
    return x + 13


x = torch.ones(2)
added(Tags(), x)
discarded(Tags(["seen"]), x)
united(Tags(), x)
cleared(Tags(["seen"]), x)
popped(Tags(["seen"]), x)
in_an_override(Counted(), x)
extended(History(), x)
by_operator(History(), x)
by_method(History(), x)
made_here(x)
made_and_filled(x)
in_a_helper(History(), x)
after_a_break(Tags(), x)
torch.compile(Model(), backend="eager")(x)
