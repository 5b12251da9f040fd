"""A wrapper that passes on calls by itself is stored in place of a method, without a frame of dynx in between."""

from __future__ import annotations

import itertools
import sys
import types

import pytest

from dynx._torch.hooks import HookPoint, installed, subscribe, wrap

POINT = HookPoint("test", "step_target:Machine.step")


def depth():
    frame, frames = sys._getframe(), 0
    while frame is not None:
        frame, frames = frame.f_back, frames + 1
    return frames


@pytest.fixture
def machine():
    """A class with a method without arguments, as the one with which Dynamo traces an instruction."""
    module = types.ModuleType("step_target")

    class Machine:
        def step(self):
            return depth()

    module.Machine = Machine
    sys.modules["step_target"] = module
    yield Machine
    del sys.modules["step_target"]


class Counter:
    """Counts the calls of a method that it wraps, until its handle is removed."""

    def __init__(self, *, passes_on=True):
        self.calls, self.is_on = 0, True
        self.handle = wrap(POINT, self.around, passes_on=passes_on)

    def around(self, original):
        def step(machine):
            self.calls += self.is_on
            return original(machine)

        return step

    def remove(self):
        self.is_on = False
        self.handle.remove()


class Subscriber:
    def __init__(self):
        self.calls = 0
        self.handle = subscribe(POINT, self.count, on_error=print)

    def count(self, args, kwargs):
        self.calls += 1

    def remove(self):
        self.handle.remove()


def test_only_wrapper_of_a_method_adds_one_frame(machine):
    before, original = machine().step(), vars(machine)["step"]
    for passes_on, frames in ((True, 1), (False, 2)):
        counter = Counter(passes_on=passes_on)
        assert machine().step() == before + frames
        assert vars(machine)["step"].__name__ == "step"
        counter.remove()
        assert vars(machine)["step"] is original


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
@pytest.mark.parametrize("kinds", list(itertools.product([Counter, Subscriber], repeat=3)))
def test_hooks_that_come_and_go_in_any_order_are_called_once_a_call(machine, kinds, order):
    original, hooks = vars(machine)["step"], []
    for kind in kinds:
        hooks.append(kind())
        before = [hook.calls for hook in hooks]
        machine().step()
        assert [hook.calls for hook in hooks] == [calls + 1 for calls in before]
    for removed in order:
        hooks[removed].remove()
        remaining = [hook for index, hook in enumerate(hooks) if index not in order[: order.index(removed) + 1]]
        before = [hook.calls for hook in hooks]
        machine().step()
        assert [hook.calls - calls for hook, calls in zip(hooks, before, strict=True)] == [hook in remaining for hook in hooks]
    assert vars(machine)["step"] is original
    assert not installed()


def test_patch_of_another_tool_above_a_wrapper_stays_when_the_wrapper_is_removed(machine):
    counter, patched = Counter(), []
    below = machine.step

    def patch(self):
        patched.append(self)
        return below(self)

    machine.step = patch
    counter.remove()
    later = Counter()
    machine().step()
    assert (counter.calls, len(patched), later.calls) == (0, 1, 1)
    later.remove()
    assert vars(machine)["step"] is patch
    machine().step()
    assert (counter.calls, len(patched), later.calls) == (0, 2, 1)


def test_subscriber_added_below_a_patch_of_another_tool_is_called(machine):
    counter = Counter()
    below = machine.step
    machine.step = lambda self: below(self)
    subscriber = Subscriber()
    machine().step()
    assert (counter.calls, subscriber.calls) == (1, 1)
    subscriber.remove()
    counter.remove()
    machine().step()
    assert (counter.calls, subscriber.calls) == (1, 1)
