"""Values that change in the same calls: torch reports the first failed guard only, dynx all of that cache entry."""

from __future__ import annotations

import enum
from dataclasses import replace

import torch

import dynx
from dynx.records import Compile


class Mode(enum.Enum):
    HOLD = 1
    TRACK = 2


def watched(f, *calls):
    torch._dynamo.reset()
    compiled = torch.compile(f, backend="eager")
    with dynx.watch() as w:
        for call in calls:
            compiled(torch.ones(3), *call)
    assert not w.troubles
    return w


def by_mode(x, mode, act):
    x = x if mode is Mode.HOLD else -x
    return x.relu() if act == "relu" else x.tanh()


def test_a_value_that_always_changes_with_another_has_a_finding():
    watch = watched(by_mode, (Mode.HOLD, "relu"), (Mode.TRACK, "tanh"))
    (recompile,) = watch.recompiles
    assert {recompile.reasons[0].source, *(reason.source for reason in recompile.further)} == {"mode", "act"}
    (named,) = [finding for finding in watch.findings if "in the same calls as" in finding.title]
    assert named.seconds == 0.0
    assert len(watch.findings) == 2


def test_a_value_that_changes_alone_in_another_call_is_no_hidden_cause():
    watch = watched(by_mode, (Mode.HOLD, "relu"), (Mode.TRACK, "tanh"), (Mode.TRACK, "relu"), (Mode.HOLD, "tanh"))
    assert len(watch.findings) == 2
    assert not [finding for finding in watch.findings if "in the same calls as" in finding.title]


def test_a_value_that_does_not_change_is_none():
    watch = watched(by_mode, (Mode.HOLD, "relu"), (Mode.TRACK, "relu"))
    assert [recompile.further for recompile in watch.recompiles] == [()]
    assert len(watch.findings) == 1


def test_numbers_that_became_dynamic_are_none():
    watch = watched(lambda x, a, b: x * a + b, (2, 3), (4, 5))
    assert len(watch.findings) == 1


def test_an_object_that_is_replaced_is_one_cause_with_its_parts():
    class Settings:
        def __init__(self, scale, shift):
            self.scale, self.shift = scale, shift

    watch = watched(lambda x, s: x * s.scale if s.shift else x, (Settings(2, "b"),), (Settings(3, "c"),))
    assert len(watch.recompiles) == 1
    assert len(watch.findings) == 2  # two attributes, not the object


def test_guards_of_a_file_without_a_first_reason_are_no_hidden_cause():
    (recompile,) = watched(by_mode, (Mode.HOLD, "relu"), (Mode.TRACK, "tanh")).recompiles
    first = Compile(recompile.generation, recompile.id, recompile.location, "compiled", 1.0)
    assert dynx.Run((first, replace(recompile, reasons=())), {}).findings == ()
