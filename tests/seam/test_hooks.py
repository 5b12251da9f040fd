"""The one monkeypatcher: nothing of it is left behind, and nothing of it reaches the program."""

from __future__ import annotations

import sys
import threading
import types

import pytest

from dynx._torch.hooks import HookPoint, installed, subscribe
from dynx.errors import UnsupportedTorch


@pytest.fixture
def target(monkeypatch):
    """A module to hook, with a function, a method, an inherited method and a static method."""
    module = types.ModuleType("hook_target")

    class Base:
        def inherited(self, x):
            return x + 1

    class Thing(Base):
        def method(self, x):
            return x * 2

        @staticmethod
        def static(x):
            return x - 1

    def function(x):
        if x < 0:
            raise ValueError(x)
        return x

    module.Thing, module.function = Thing, function
    monkeypatch.setitem(sys.modules, "hook_target", module)
    return module


@pytest.fixture
def trouble():
    """Collects what subscribers raised."""
    return []


def point(path):
    return HookPoint("test", f"hook_target:{path}")


@pytest.mark.parametrize("path", ["function", "Thing.method", "Thing.static", "Thing.inherited"])
def test_the_exact_original_is_back_when_the_last_subscriber_leaves(target, path, trouble):
    owner = target if "." not in path else target.Thing
    name = path.rpartition(".")[2]
    before = vars(owner).get(name)
    one = subscribe(point(path), lambda a, k: None, on_error=trouble.append)
    two = subscribe(point(path), lambda a, k: None, on_error=trouble.append)
    assert vars(owner)[name] is not before
    one.remove()
    assert vars(owner)[name] is not before
    two.remove()
    two.remove()
    assert vars(owner).get(name) is before
    assert not installed()


def test_every_kind_of_attribute_still_works_while_hooked(target):
    calls = []
    handles = [
        subscribe(point(path), lambda a, k, path=path: calls.append(path), on_error=print)
        for path in ("function", "Thing.method", "Thing.static", "Thing.inherited")
    ]
    thing = target.Thing()
    assert (target.function(3), thing.method(3), thing.static(3), target.Thing.static(3), thing.inherited(3)) == (3, 6, 2, 2, 4)
    assert len(calls) == 5
    for handle in handles:
        handle.remove()


def test_subscribers_run_in_order_and_finish_in_reverse(target):
    order = []

    def named(name):
        def before(args, kwargs):
            order.append(name)
            return lambda result, raised: order.append((name, result))

        return before

    with subscribe(point("function"), named("a"), on_error=print), subscribe(point("function"), named("b"), on_error=print):
        target.function(3)
    assert order == ["a", "b", ("b", 3), ("a", 3)]


def test_what_a_subscriber_raises_is_reported_and_the_program_goes_on(target):
    told = []

    def report(hook, error):
        told.append((hook, str(error)))

    def fails_before(args, kwargs):
        raise RuntimeError("before")

    def fails_after(args, kwargs):
        def after(result, raised):
            raise RuntimeError("after")

        return after

    with (
        subscribe(point("function"), fails_before, on_error=report),
        subscribe(point("function"), fails_after, on_error=report),
    ):
        assert target.function(3) == 3
    assert told == [("test", "before"), ("test", "after")]


def test_the_programs_exception_passes_through(target):
    seen = []
    with (
        subscribe(point("function"), lambda a, k: lambda result, raised: seen.append(raised), on_error=print),
        pytest.raises(ValueError, match="-1") as raised,
    ):
        target.function(-1)
    assert seen == [raised.value]


def test_a_subscriber_that_leaves_during_a_call_is_still_told_its_end(target):
    ended = []

    def before(args, kwargs):
        handle.remove()
        return lambda result, raised: ended.append(result)

    handle = subscribe(point("function"), before, on_error=print)
    assert target.function(3) == 3
    assert ended == [3]
    assert not installed()


def test_a_subscription_can_be_limited_to_its_thread(target):
    calls = []
    with subscribe(point("function"), lambda a, k: calls.append(a), on_error=print, this_thread_only=True):
        thread = threading.Thread(target=target.function, args=(1,))
        thread.start()
        thread.join()
        target.function(2)
    assert calls == [(2,)]


def test_somebody_elses_patch_on_top_of_ours_is_left_in_place(target):
    """Undoing ours must not undo theirs."""
    original = target.function
    handle = subscribe(point("function"), lambda a, k: None, on_error=print)
    ours = target.function
    theirs = target.function = lambda x: ours(x) * 10
    handle.remove()
    assert target.function is theirs
    assert target.function(3) == 30
    target.function = original


def test_a_hook_point_that_torch_lacks_says_so(target):
    with pytest.raises(UnsupportedTorch, match="torch has no hook_target:gone"):
        subscribe(HookPoint("test", "hook_target:gone", purpose="seeing"), lambda a, k: None, on_error=print)
