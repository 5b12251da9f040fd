"""The HTML page of a run in a notebook: self-contained, escaped, without scripts."""

from __future__ import annotations

import io
import re
from html.parser import HTMLParser

import torch
from rich.console import Console

import dynx
from dynx import Run
from dynx.records import Compile, EagerTime, GaveUp, GraphBreak, Location, Reason, Recompile
from dynx.report import terminal


class Tags(HTMLParser):
    """A parser that collects tags and checks that they nest."""

    def __init__(self):
        super().__init__()
        self.seen, self.open = [], []

    def handle_starttag(self, tag, attrs):
        self.seen.append((tag, dict(attrs)))
        self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_notebook_page_of_a_run_is_well_formed_and_self_contained(run):
    page = run._repr_html_()
    tags = Tags()
    tags.feed(page)
    assert not tags.open
    assert not [attrs for _, attrs in tags.seen if {"src", "href", "onclick"} & set(attrs)]
    assert not re.search(r"url\(|@import|<script", page)


def test_notebook_page_of_a_run_shows_its_findings_and_tables(run):
    page = run._repr_html_()
    for text in ("DX301", "model.py:58", "make self.step a tensor buffer", "Recompiles", "torch 2.13.0", "Became dynamic"):
        assert text in page


def test_notebook_page_of_a_run_escapes_text_of_the_program():
    evil = "<script>alert(1)</script>"
    here = Location(evil, 1, evil)
    page = Run(
        (GraphBreak(here, (here,), evil, callee="print"),), {"torch": evil}, {"seconds": 1.0, "device": evil}
    )._repr_html_()
    assert "<script" not in page
    assert "&lt;script&gt;" in page


def test_notebook_page_of_a_run_has_colours_for_dark_and_light_themes(run):
    page = run._repr_html_()
    assert "prefers-color-scheme: dark" in page
    assert 'data-jp-theme-light="false"' in page


def test_notebook_and_terminal_name_the_line_that_called_the_function_of_a_finding():
    """`mark_dynamic` belongs before the call, not at the line that uses the size."""

    def double(x):
        return x * 2

    compiled = torch.compile(double, backend="eager")
    with dynx.watch() as w:
        for size in (3, 4):
            compiled(torch.ones(size))
    (finding,) = w.findings
    assert finding.called_from.line != finding.location.line
    assert f"test_html.py:{finding.called_from.line})" in w.run._repr_html_()
    console = Console(width=300, file=io.StringIO())
    console.print(terminal(w.run))
    assert f"test_html.py:{finding.called_from.line})" in console.file.getvalue()


def test_notebook_and_terminal_say_what_needs_no_change_and_how_long_a_function_ran_uncompiled():
    line = Location("train.py", 7, "update")
    kind = "Call to `torch._dynamo.graph_break()`"
    of_optimizer = GraphBreak(line, (line,), kind, "DX221", kind=kind, code="opt.step()")
    reason = Reason("value", "n", "1", "2", line)
    given_up = (
        Compile(0, "0/0", line, "compiled", 1.0),
        Recompile(0, "0/1", line, (reason,), 1.0),
        Compile(0, "0/1", line, "compiled", 1.0),
        GaveUp(0, "0/2", line, "recompile_limit", 2),
        EagerTime(line, 3.0, 4.0, 150),
    )
    console = Console(width=80, file=io.StringIO())
    run = Run((of_optimizer, *given_up))
    console.print(terminal(run))
    for text in (console.file.getvalue(), run._repr_html_()):
        joined = " ".join(text.split())
        assert "1 graph break needs no change: dynx rule DX221" in joined
        assert "since then uncompiled for 75 % of the time" in joined
