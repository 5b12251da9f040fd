"""Sliding windows: a deque that is full keeps the wrong items, unless items are only appended at its right end."""
import collections

import torch

deque = collections.deque
compiled = torch.compile(backend="eager")


def full():
    return deque([1, 2, 3], maxlen=3)


class Agent:
    def __init__(self):
        self.newest_first = full()

    def observe(self, reward):
        self.newest_first.appendleft(reward)  # DX802


class Policy(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.recent = full()

    def forward(self, x):
        self.recent.appendleft(x.shape[0])  # DX802
        return x * 2


window = full()
windows = {"loss": full()}


@compiled
def at_the_left(window, x):
    window.appendleft(9)  # DX802
    return x + 1


@compiled
def several_at_the_left(window, x):
    window.extendleft([8, 9])  # DX802
    return x + 2


@compiled
def then_popped(window, x):
    window.append(9)
    window.popleft()  # DX802
    return x + 3


@compiled
def then_popped_at_the_right(window, x):
    window.append(9)
    window.pop()  # DX802
    return x + 4


@compiled
def then_cleared_at_the_left(window, x):
    window.append(9)
    del window[0]  # DX802
    return x + 5


@compiled
def then_reversed(window, x):
    window.append(9)
    window.reverse()  # DX802
    return x + 6


@compiled
def a_global(x):
    window.appendleft(9)  # DX802
    return x + 7


@compiled
def in_a_dict(x):
    windows["loss"].appendleft(9)  # DX802
    return x + 8


@compiled
def in_a_method(agent, x):
    agent.observe(1)
    return x + 9


@compiled
def in_a_loop(window, x):
    for step in range(3):
        window.appendleft(step)  # DX802
    return x + 10


@compiled
def until_it_is_full(window, x):
    window.appendleft(8)
    window.appendleft(9)  # DX802
    return x + 11


@compiled
def removed(window, x):
    window.append(9)
    window.remove(3)  # DX802
    return x + 12


@compiled
def first_assigned(window, x):
    window.append(9)
    window[0] = 7  # DX802
    return x + 13


x = torch.ones(2)
at_the_left(full(), x)
several_at_the_left(full(), x)
then_popped(full(), x)
then_popped_at_the_right(full(), x)
then_cleared_at_the_left(full(), x)
then_reversed(full(), x)
a_global(x)
in_a_dict(x)
in_a_method(Agent(), x)
in_a_loop(full(), x)
until_it_is_full(deque([1, 2], maxlen=3), x)
removed(full(), x)
first_assigned(full(), x)
torch.compile(Policy(), backend="eager")(x)
