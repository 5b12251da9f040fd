"""A run groups and merges its events."""

from __future__ import annotations

import dataclasses
import json

import pytest

from dynx.records import Compile, GraphBreak, Location, Recompile, Run, Skipped

HERE = Location("train.py", 41, "main")
DEEPER = Location("model.py", 7, "Block.forward")


def test_one_cause_is_one_break_with_the_longest_chain():
    """torch reports a break in a helper again when the helper is compiled on its own."""
    outer = GraphBreak(DEEPER, (HERE, DEEPER), "Failed to trace builtin operator", kind="print", compiles=((0, "0/0"),))
    inner = GraphBreak(DEEPER, (DEEPER,), "Failed to trace builtin operator", kind="print", compiles=((0, "1/0"),))
    (merged,) = Run((inner, outer)).graph_breaks
    assert (merged.count, merged.chain) == (2, (HERE, DEEPER))
    assert merged.compiles == ((0, "1/0"), (0, "0/0"))


def test_skipped_functions_are_counted():
    assert Run((Skipped(HERE, "no tensor"), Skipped(HERE, "no tensor"))).skipped == (Skipped(HERE, "no tensor", 2),)


def test_records_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        HERE.line = 3


def test_a_library_line_names_the_users_own():
    library = Location("/x/site-packages/lib/a.py", 3, "f", library="lib", caller=HERE)
    assert library.own is HERE
    assert HERE.own is HERE
    assert str(library).endswith("a.py:3 in f (lib), called from train.py:41 in main")


def test_to_json_holds_every_group():
    run = Run((Compile(0, "0/0", HERE, "compiled", 1.0), Recompile(0, "0/1", HERE, ())))
    data = json.loads(run.to_json())
    assert [len(data[name]) for name in ("compiles", "recompiles", "findings")] == [1, 1, 0]


def test_repr_is_one_line():
    assert repr(Run()) == "<Run: 0 compiles, 0 recompiles, 0 graph breaks, 0 gave up, 0 findings>"
