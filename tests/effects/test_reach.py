"""`check` finds state wherever a program holds it: it compares it, and leaves the caller's as it was or names what changed."""

from __future__ import annotations

import copy

import pytest
import torch
from support.ways_to_hold_state import KINDS, WAYS

import dynx

# ways in which no name in the code leads to the state, or a suspended frame holds it
COMPUTED = {
    "computed_attribute_of_a_module",
    "computed_global",
    "generator_object",
}


def program(way, kind):
    state = kind.make()
    made = WAYS[way](kind.mutate, state)
    fn, *arguments = made if isinstance(made, tuple) else (made,)
    return fn, (*arguments, torch.ones(2)), state


def after_two_calls(way, kind, *, compiled):
    """Return the state after two calls of torch's own, or the exception."""
    torch._dynamo.reset()
    fn, arguments, state = program(way, kind)
    fn = torch.compile(fn, backend="eager") if compiled else fn
    stance = "default" if compiled else "force_eager"
    with torch.compiler.set_stance(stance):
        for _ in range(2):
            try:
                fn(*arguments)
            except Exception as error:  # noqa: BLE001 - what a program raises is a result too
                return type(error).__name__, kind.read(state)
    return kind.read(state)


@pytest.mark.filterwarnings("ignore:Dynamo detected a call to a `functools.lru_cache`")
@pytest.mark.parametrize(("way", "kind"), [(way, kind) for way in WAYS for kind in KINDS])
def test_state_is_compared_and_left_as_it_was(way, kind):
    """Torch's own results are the oracle; a verdict that is not proven names what both sides used."""
    is_same = after_two_calls(way, KINDS[kind], compiled=False) == after_two_calls(way, KINDS[kind], compiled=True)
    torch._dynamo.reset()
    fn, arguments, state = program(way, KINDS[kind])
    before = copy.copy(KINDS[kind].read(state))
    report = dynx.check(fn, *arguments)
    if way in COMPUTED:
        assert (report.outcome, bool(report.leaks)) == ("not isolated", True)
        return
    assert KINDS[kind].read(state) == before
    assert not report.leaks
    if report.outcome != "vacuous":  # torch compiles nothing of some
        assert report.outcome == ("same" if is_same else "different"), report.text
    else:
        assert is_same
