"""A `Run` groups its records by kind and merges equal ones."""

from __future__ import annotations

import dataclasses
import json

import pytest

from dynx import Run
from dynx.records import Compile, GraphBreak, Location, Recompile, Skipped

HERE = Location("train.py", 41, "main")
DEEPER = Location("model.py", 7, "Block.forward")


def test_graph_breaks_with_one_cause_merge_and_keep_the_longest_call_chain():
    """torch reports a break in a helper again when the helper is compiled on its own."""
    outer = GraphBreak(DEEPER, (HERE, DEEPER), "Failed to trace builtin operator", kind="print", compiles=((0, "0/0"),))
    inner = GraphBreak(DEEPER, (DEEPER,), "Failed to trace builtin operator", kind="print", compiles=((0, "1/0"),))
    (merged,) = Run((inner, outer)).graph_breaks
    assert (merged.count, merged.chain) == (2, (HERE, DEEPER))
    assert merged.compiles == ((0, "1/0"), (0, "0/0"))


def test_equal_skipped_records_merge_into_one_with_a_count():
    assert Run((Skipped(HERE, "no tensor"), Skipped(HERE, "no tensor"))).skipped == (Skipped(HERE, "no tensor", 2),)


def test_records_are_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        HERE.line = 3


def test_library_location_names_the_users_line_that_called_it():
    library = Location("/x/site-packages/lib/a.py", 3, "f", library="lib", caller=HERE)
    assert library.own is HERE
    assert HERE.own is HERE
    assert str(library).endswith("a.py:3 in f (lib), called from train.py:41 in main")


def test_only_compiles_with_a_graph_break_that_cannot_resume_count_as_eager():
    """The same graph break may be resumable in one compilation and not in another."""
    compiles = [Compile(0, id, HERE, "skipped", 1.0) for id in ("0/0", "1/0")]
    breaks = [
        GraphBreak(HERE, (HERE,), "no", resumable=True, compiles=((0, "0/0"),)),
        GraphBreak(HERE, (HERE,), "no", resumable=False, compiles=((0, "1/0"),)),
    ]
    assert Run((*compiles, *breaks)).eager == (compiles[1],)


def test_json_of_a_run_has_every_group_of_records_in_a_fixed_order():
    """Other programs read this JSON."""
    assert list(json.loads(Run().to_json())) == [
        "header", "end", "findings", "compiles", "backwards", "recompiles", "graph_breaks", "gave_up", "skipped", "uses",
        "caches",
        "cudagraph_skips", "cudagraphs", "address_changes", "dynamic", "specialized", "saved", "side_effects", "unguarded",
        "stale_values", "profile_misses",
        "warnings", "logs", "post_mortem", "traced", "timeline", "guards", "graph_code", "cache_keys", "cache_settings",
        "eager_times",
        "isa_checks",
        "backward_captures",
        "what_ifs",
        "trials",
        "troubles",
    ]  # fmt: skip


def test_json_of_a_run_has_the_records_of_each_group():
    run = Run((Compile(0, "0/0", HERE, "compiled", 1.0), Recompile(0, "0/1", HERE, ())))
    data = json.loads(run.to_json())
    assert [len(data[name]) for name in ("compiles", "recompiles", "findings")] == [1, 1, 0]


def test_repr_of_a_run_is_one_line():
    assert repr(Run()) == "<Run: 0 compiles, 0 recompiles, 0 graph breaks, 0 gave up, 0 findings>"
