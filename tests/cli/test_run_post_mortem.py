"""`dynx run --post-mortem`: the state of the tracer at each graph break, in the report and in the run file."""

from __future__ import annotations

import re

import pytest

from dynx import Run

SOURCE = """
import torch

@torch.compile(backend="eager")
def f(x):
    y = x + 1
    print("hello")
    return y * 2

print(f(torch.ones(2)).tolist())
"""


def test_post_mortem_option_reports_and_saves_the_tracer_state_at_a_graph_break(program, shell, tmp_path):
    done = shell("-m", "dynx", "run", "--post-mortem", "--out", "run.dynx", program(SOURCE))
    assert done.stdout == "hello\n[4.0, 4.0]\n"
    assert "(post-mortem 1)" in done.stderr, "the finding refers to the post-mortem"
    assert '▶    7      print("hello")' in done.stderr
    (state,) = Run.load(tmp_path / "run.dynx").post_mortem
    assert state.frames[0].locals == {"x": "Tensor(float32, [2])", "y": "Tensor(float32, [2])"}


@pytest.mark.slow
def test_detail_full_option_adds_the_tracing_cost_of_every_line(program, shell, tmp_path):
    done = shell("-m", "dynx", "run", "--detail", "full", "--out", "run.dynx", program(SOURCE), "--detail", "mine")
    assert done.stdout == "hello\n[4.0, 4.0]\n"
    assert "(post-mortem 1)" in done.stderr
    assert "in discarded attempts" in done.stderr
    run = Run.load(tmp_path / "run.dynx")
    assert {line.location.line for line in run.timeline} >= {6, 7, 8}
    page = run._repr_html_()
    (anchor,) = re.findall(r'<a href="#([^"]*)">post-mortem 1</a>', page)
    assert f'id="{anchor}"' in page, "the finding links to the post-mortem"
    assert "Tracing, line by line" in page


@pytest.mark.slow
def test_tracer_state_is_not_saved_without_the_post_mortem_option(program, shell, tmp_path):
    shell("-m", "dynx", "run", "--out", "run.dynx", program(SOURCE))
    assert Run.load(tmp_path / "run.dynx").post_mortem == ()
