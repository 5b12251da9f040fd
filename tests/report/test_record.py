"""The terminal and notebook views of the records that functions of `dynx.guards` return."""

from __future__ import annotations

import io
import json
import re

import pytest
from rich.console import Console

from dynx.records import (
    CacheReport,
    CostNode,
    Entry,
    FrameCost,
    GuardCosts,
    GuardInfo,
    GuardNode,
    GuardSetting,
    Location,
    Reason,
    Verdict,
)
from dynx.records.codec import from_data

HERE = Location("model.py", 12, "f")
VALUE = GuardInfo("value", "n", "2", HERE, (HERE, Location("model.py", 13, "f")), "EQUALS_MATCH", "n == 2")
STATE = GuardInfo("global_state", "", None, None, (), "GLOBAL_STATE", "___check_global_state()")
MARK = GuardInfo("attribute", "x._dynamo_static_indices", "absent", None, (), "NO_HASATTR", "hasattr")
WEIGHT = GuardInfo("tensor", "self._modules['layers']._modules['0'].weight", "float32, <[3]>", HERE, (), "TENSOR_MATCH", "")
TREE = GuardNode("", "", "", (STATE,), (GuardNode("n", "int", "", (VALUE, MARK, WEIGHT)),))
CACHE = CacheReport(
    HERE,
    (
        Entry(0, "0/0", HERE, "eager", TREE, {"fullgraph": "True", "dynamic": "None"}, 0.04, 3),
        Entry(0, "1/0", HERE, "eager", GuardNode("", "", ""), resumes=14),
    ),
)
REASON = Reason("value", "n", "2", None, HERE, "DX114", against="0/0")
MISS = Verdict("recompile", HERE, reasons=(REASON,))
HIT = Verdict("hit", HERE, entry="0/0", unknown=("the resume function of f after line 14",))
COSTS = GuardCosts(
    HERE,
    1_500_000.0,
    (
        FrameCost(
            "0/0",
            HERE,
            900.0,
            CostNode("", "", 900.0, 200.0, (STATE,), (CostNode("L['n']", "int", 700.0, 700.0, (VALUE,)),)),
            2,
        ),
    ),
    (GuardSetting("in use", 1800.0, 4), GuardSetting("dict tags", 600.0, 4, ("a <class>",), "looked", "apply")),
)


def shown(record, width=100):
    console = Console(width=width, file=io.StringIO(), color_system=None)
    console.print(record)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


def test_terminal_view_of_a_cache_report():
    assert shown(CACHE) == [
        "f  model.py:12  2 versions in torch's cache",
        "",
        "0/0  eager  4 guards  40 ms  3 calls  fullgraph=True",
        "  value                  expected        guard   asked for at",
        "  n                      2               value   model.py:12 and 1 line more",
        "  self.layers[0].weight  float32, <[3]>  tensor  model.py:12",
        "  and 2 on global state or on Dynamo's own attributes of tensors",
        "",
        "1/0  eager  resume function after line 14  0 guards",
    ]


def test_terminal_view_of_a_would_recompile_verdict():
    assert shown(MISS) == [
        "f  model.py:12 would recompile",
        "  version  value  expected  got  asked for at  rule",
        "  0/0      n      2         ?    model.py:12   DX114",
    ]
    assert shown(HIT) == [
        "f  model.py:12 hits a cache entry  0/0",
        "  decided only during the call: the resume function of f after line 14",
    ]


def test_terminal_view_of_guard_costs():
    assert shown(COSTS) == [
        "guards take 1.80 us of a call of 1,500 us (less than 1 %)  f  model.py:12",
        "     time  guards  setting    would miss",
        "  1.80 us       4  in use",
        "  0.60 us       4  dict tags  a <class>",
        "  no cheaper setting is safe in every case",
        "",
        "0/0  most expensive values  the function, 2 times a call: 2 guards in 0.90 us",
        "     time  part  guards  value",
        "  0.70 us   78%       1  n",
        "  0.20 us   22%       1  global state",
    ]


@pytest.mark.parametrize(
    "record", [CACHE, MISS, HIT, COSTS], ids=["cache report", "recompile verdict", "hit verdict", "guard costs"]
)
def test_notebook_view_of_a_guards_record_escapes_text_of_the_program(record):
    page = record._repr_html_()
    assert "<[3]>" not in page
    assert "<class>" not in page
    assert "f  model.py:12" in page or "model.py:12" in page


def in_a_deep_folder(source, lines):
    places = [Location("experiments/language_models/configurations/training_model.py", line, "f") for line in lines]
    return GuardInfo("type", source, "<class 'torch.nn.modules.container.ModuleList'>", places[0], tuple(places), "", "")


DEEP = in_a_deep_folder("self.decoder.layers", [158]), in_a_deep_folder("self.decoder.layers[1].forward", [9, 10, 12])


@pytest.mark.parametrize("width", [60, 80])
def test_terminal_view_of_a_cache_report_keeps_path_and_line_number_together(width):
    """A path is copied into an editor, or clicked on in a terminal that finds `path:line`."""
    entry = Entry(0, "0/0", HERE, "eager", GuardNode("", "", "", DEEP))
    lines = shown(CacheReport(DEEP[0].location, (entry,)), width)
    places = [word for line in lines for word in line.split() if "training_model" in word or ".py" in word]
    assert len(places) == 3
    assert all(re.fullmatch(r"(…|experiments)/(\w+/)*training_model\.py:(158|9)", place) for place in places), places
    assert any(line.endswith("and 2 lines more") for line in lines)
    assert max(map(len, lines)) <= width


def test_terminal_view_of_a_cache_report_has_whole_paths_where_they_fit():
    entry = Entry(0, "0/0", HERE, "eager", GuardNode("", "", "", DEEP))
    lines = shown(CacheReport(HERE, (entry,)), 230)
    assert any(
        line.endswith("experiments/language_models/configurations/training_model.py:9 and 2 lines more") for line in lines
    )


@pytest.mark.parametrize(
    "record", [CACHE, MISS, HIT, COSTS], ids=["cache report", "recompile verdict", "hit verdict", "guard costs"]
)
@pytest.mark.parametrize("width", [60, 80, 160])
def test_terminal_view_of_a_guards_record_fits_the_terminal_width(record, width):
    assert max(map(len, shown(record, width))) <= width


@pytest.mark.parametrize(
    "record", [CACHE, MISS, HIT, COSTS], ids=["cache report", "recompile verdict", "hit verdict", "guard costs"]
)
def test_guards_record_is_equal_after_a_json_round_trip(record):
    data = json.loads(record.to_json())
    assert "type" in data
    assert from_data(type(record), data) == record


def test_many_guards_are_truncated_in_the_terminal_and_complete_in_the_notebook():
    guards = tuple(GuardInfo("value", f"n{i}", "2", HERE) for i in range(40))
    cache = CacheReport(HERE, (Entry(0, "0/0", HERE, "eager", GuardNode("", "", "", guards)),))
    assert "  and 28 more" in shown(cache)
    assert "n39" not in "".join(shown(cache))
    assert "n39" in cache._repr_html_()
