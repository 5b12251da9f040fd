"""Every program of `benchmarks/advice` has a label that fits it; `make labels` runs them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from label import read_label

PROGRAMS = sorted((Path(__file__).parents[2] / "benchmarks" / "advice" / "programs").glob("*.py"))


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_label_of_a_corpus_program_names_lines_and_edits_that_exist_in_it(path):
    read_label(path)


def test_corpus_has_programs_of_every_family_and_programs_without_costs():
    labels = [read_label(path) for path in PROGRAMS]
    assert len(labels) >= 121
    assert min(Counter(label.family for label in labels).values()) >= 2
    assert sum(not label.costs for label in labels) >= 5
