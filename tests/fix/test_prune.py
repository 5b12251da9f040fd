"""Fixes that later ones made unnecessary are taken out of the text again."""

from __future__ import annotations

import pytest

from dynx.fix._plan import Plan
from dynx.fix._prune import undone, without
from dynx.fix._search import Step

TEXT = "import torch\n\nf = torch.compile(g)\nf(make())\n"
MARKED = TEXT.replace("f(make())", "x = make()\nmark(x)\nf(x)")
BOTH = MARKED.replace("compile(g)", "compile(g, dynamic=True)")


def test_a_change_is_undone_in_a_text_that_was_changed_further():
    assert undone(BOTH, TEXT, MARKED) == TEXT.replace("compile(g)", "compile(g, dynamic=True)")
    assert undone(BOTH, MARKED, BOTH) == MARKED


@pytest.mark.parametrize("text", [MARKED.replace("mark(x)", "mark(x, 1)"), MARKED + MARKED, TEXT])
def test_a_change_whose_lines_are_not_there_once_is_left(text):
    assert undone(text, TEXT, MARKED) is None


def test_a_plan_without_one_of_its_steps():
    before, after = Plan(sources={"a.py": TEXT}), Plan(sources={"a.py": MARKED})
    step = Step(None, before, after)
    assert without(Plan(sources={"a.py": BOTH}), step).sources == {"a.py": TEXT.replace("g)", "g, dynamic=True)")}
