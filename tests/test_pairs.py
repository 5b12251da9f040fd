"""The benchmarks' paired measurements: what is decided, when more pairs are taken, and the exit codes."""

from __future__ import annotations

import importlib.util
import itertools
import json
import sys
from pathlib import Path

import pytest

FILE = Path(__file__).parent.parent / "benchmarks" / "pairs.py"


@pytest.fixture(scope="module")
def pairs():
    spec = importlib.util.spec_from_file_location("pairs_of_benchmarks", FILE)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # for dataclasses
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("low", "high", "verdict"), [(0.8, 0.9, "ok"), (0.8, 1.0, "ok"), (1.1, 1.2, "MISSED"), (0.9, 1.1, "undecided")]
)
def test_an_interval_decides_unless_the_bound_is_in_it(pairs, low, high, verdict):
    measured = pairs.Measured("row", (low + high) / 2, low, high, 15, 1.0)
    assert measured.verdict == verdict
    assert str(measured).endswith(verdict)


def test_a_clear_difference_takes_the_first_pairs_only(pairs):
    measured = pairs.ratio("row", lambda: 2.0, lambda: 1.0, bound=3, pairs=5)
    assert (measured.pairs, measured.median, measured.verdict) == (5, 2.0, "ok")
    assert pairs.ratio("row", lambda: 2.0, lambda: 1.0, bound=1.5, pairs=5).verdict == "MISSED"


def test_noise_around_the_bound_takes_more_pairs_up_to_a_limit(pairs):
    noise = itertools.cycle([0.9, 1.1])
    measured = pairs.ratio("row", lambda: next(noise), lambda: 1.0, bound=1.0, pairs=5)
    assert (measured.pairs, measured.verdict) == (5 * pairs.MOST, "undecided")


def test_the_order_within_a_pair_alternates(pairs):
    order = []
    pairs.ratio("row", lambda: order.append("with") or 1.0, lambda: order.append("without") or 1.0, bound=2, pairs=2)
    assert order == ["with", "without", "with", "without", "without", "with"]


@pytest.mark.parametrize(
    ("verdicts", "code"), [(["ok", "ok"], 0), (["ok", "undecided"], 3), (["undecided", "MISSED"], 1), (["MISSED"], 1)]
)
def test_exit_codes_of_a_report(pairs, verdicts, code, tmp_path, capsys):
    bounds = {"ok": 3.0, "undecided": 1.0, "MISSED": 0.5}
    rows = [pairs.Measured(verdict, 1.0, 0.9, 1.1, 15, bounds[verdict]) for verdict in verdicts]
    assert pairs.report("title", rows, tmp_path / "out.json") == code
    assert [row["verdict"] for row in json.loads((tmp_path / "out.json").read_text())["ratios"]] == verdicts
    assert "title" in capsys.readouterr().out
