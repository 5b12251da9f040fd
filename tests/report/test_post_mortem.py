"""The terminal and notebook views of the state of the tracer at a graph break."""

from __future__ import annotations

import io

from rich.console import Console

from dynx import Run
from dynx.records import BreakState, FrameState, Location, TracedGuard
from dynx.report import post_mortem, post_mortem_html, terminal

INNER = Location("model.py", 11, "inner", 11, 16)
STATE = BreakState(
    "0/0",
    0,
    INNER,
    "Failed to trace <b>print</b>",
    "Failed",
    "",
    ("Drop it.",),
    (
        FrameState(
            INNER, "CALL 1", ("<null>", "function print", "'ä'"), {"x": "Tensor(float32, [3])"}, ("a", "ä = 'ä'; print(x)"), 10
        ),
        FrameState(Location("model.py", 20, "f", 4, 12), "CALL 0", (), {}, ("    inner(y)",), 20),
    ),
    "def forward(self, x):\n    return x",
    3,
    (TracedGuard("TENSOR_MATCH", "L['x']", INNER), TracedGuard("GRAD_MODE", "", None)),
    count=3,
)


def shown(rendered, width=80):
    console = Console(width=width, file=io.StringIO(), color_system=None)
    console.print(rendered)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


def test_terminal_view_of_a_post_mortem_state():
    assert shown(post_mortem((STATE,))) == [
        "post-mortem 1  Failed to trace <b>print</b>  [0/0], occurred 3 times",
        "  model.py:11  inner  at CALL 1",
        "      10  a",
        "  ▶   11  ä = 'ä'; print(x)",
        "    x      Tensor(float32, [3])",
        "    stack  function print, 'ä'",
        "  called from  model.py:20  f  at CALL 0",
        "      20      inner(y)",
        "  graph     1 line of code so far",
        "  2 guards  TENSOR_MATCH L['x']  asked for at model.py:11",
        "  torch     Drop it.",
    ]


def test_post_mortem_page_underlines_the_right_text_after_non_ascii_letters():
    """Python counts the columns of an instruction in bytes; a letter outside of ASCII must not move the underline."""
    assert "ä = &#39;ä&#39;; <u>print</u>(x)" in post_mortem_html((STATE,))


def test_post_mortem_page_escapes_text_of_the_program():
    page = post_mortem_html((STATE,))
    assert "<b>print</b>" not in page
    assert "&lt;b&gt;print&lt;/b&gt;" in page


def test_post_mortem_views_say_that_there_was_no_graph_break():
    assert shown(post_mortem(())) == ["no graph break and no compile error was seen"]
    assert "no graph break" in post_mortem_html(())


def test_post_mortem_state_is_saved_in_the_run_file_and_shown_by_the_terminal_report(tmp_path):
    run = Run((STATE,), {"torch": "2.13.0"}, {"outcome": "finished"})
    run.save(tmp_path / "run.dynx")
    loaded = Run.load(tmp_path / "run.dynx")
    assert loaded.post_mortem == (STATE,)
    assert any("post-mortem 1" in line for line in shown(terminal(loaded)))
