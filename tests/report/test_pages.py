"""Notebook pages: tables that no page's style turns around, cells instead of file names, the user's line first, bars."""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap
from dataclasses import replace

import pytest
import torch

import dynx
from dynx import Run, guards, saved
from dynx.comptime import post_mortem, timeline
from dynx.records import Compile, Location
from dynx.report import _words as words
from dynx.report._records.block import Block


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(4, 3)

    def forward(self, tokens):
        x = self.embed(tokens)
        return x * 2


def pages():
    """Return a page of each kind: a run, a cache report, guard costs, a timeline, a state at a graph break, saved tensors."""

    def breaking(x):
        torch._dynamo.graph_break()
        return x.sin() * 2

    net = torch.compile(Net(), backend="eager")
    with dynx.watch() as run, timeline() as tl, post_mortem() as state:
        net(torch.tensor([1, 2]))
        torch.compile(breaking, backend="eager")(torch.ones(3))
    return {
        "dynx": run._repr_html_(),
        "dynx-record": guards.inspect(net)._repr_html_(),
        "dynx-record costs": guards.profile(net, torch.tensor([1, 2]))._repr_html_(),
        "dynx-tl": tl._repr_html_(),
        "dynx-pm": state._repr_html_(),
        "dynx-record saved": saved.report(lambda x: (x.sin() * x).sum(), torch.ones(3, requires_grad=True))._repr_html_(),
    }


def specificity(selector):
    """Return how specific a selector without pseudo-classes is: its classes, then its elements."""
    return selector.count("."), len(re.findall(r"(?:^|\s)[a-z]", selector))


@pytest.mark.slow
def test_text_in_tables_is_left_aligned_whatever_the_page_says():
    """JupyterLab aligns cells to the right with `:not(.jp-RenderedMarkdown).jp-RenderedHTMLCommon td`: two classes."""
    for name, page in pages().items():
        if "<table" not in page:
            continue
        rules = dict(re.findall(r"([^{}]+)\{([^{}]*)\}", page.partition("<style>")[2].partition("</style>")[0]))
        alignments = {
            selector.strip(): re.search(r"text-align: (\w+)", body)[1]
            for selectors, body in rules.items()
            if "text-align" in body
            for selector in selectors.split(",")
        }
        cells = {selector: value for selector, value in alignments.items() if re.search(r"t[dh](\.n)?$", selector)}
        assert set(cells.values()) == {"left", "right"}, name
        assert all(specificity(selector) > (2, 1) for selector in cells), name
        assert all((value == "right") == selector.endswith(".n") for selector, value in cells.items()), name


def test_numbers_are_right_aligned_in_the_tables_of_a_run():
    compiled = Compile(0, "0/0", Location("a.py", 3, "f"), "compiled", 1.5, nodes=12, guards=7)
    page = Run((compiled,), {}, {"seconds": 2.0})._repr_html_()
    assert re.search(r'<td class="n">12</td>', page)
    assert re.search(r'<td class="n">1\.5\d? s</td>', page)


def test_bars_are_in_proportion_and_in_notebooks_only():
    made = pages()
    widths = [int(share) for share in re.findall(r"--share: (\d+)%", made["dynx-record costs"])]
    assert max(widths) == 100
    assert len(set(widths)) > 2
    assert "--share: 100%" in made["dynx-tl"]
    phases = {"trace": 1.0, "aot": 0.0, "backend": 0.25, "guards": 0.25}
    run = Run((Compile(0, "0/0", Location("a.py", 3, "f"), "compiled", 1.5, phases=phases),), {}, {"seconds": 2.0})
    shares = [float(share) for share in re.findall(r'style="flex: ([\d.]+); background: hsl', run._repr_html_())]
    assert shares == [1.0, 0.25, 0.25]
    assert all("<script" not in page for page in made.values())


@pytest.mark.parametrize(("amounts", "expected"), [([2.0, 1.0], [1, 0.5]), ([], []), ([0.0], [0])])
def test_shares_of_the_largest_amount(amounts, expected):
    assert Block("", amounts=amounts).shares == expected


def test_guards_and_verdicts_name_the_line_of_the_user_also_after_the_watch():
    """Torch itself keeps only its own line, `modules/sparse.py:189`; a watch that was open then knows the other."""
    net = torch.compile(Net(), backend="eager", dynamic=False)
    line = Net.forward.__code__.co_firstlineno + 1
    with dynx.watch():
        net(torch.tensor([1, 2]))
        during = guards.inspect(net)
    for record in (during, guards.inspect(net), dynx.would_recompile(net, torch.tensor([1]))):
        assert f"test_pages.py:{line}" in record._repr_html_()
        assert not re.search(r"sparse\.py:\d", record._repr_html_())


def test_a_line_of_the_user_comes_before_that_of_a_library():
    location = Location("/lib/site-packages/models/layers.py", 7, "forward", library="models", caller=Location("a.py", 3, "f"))
    assert words.own_and_library(location) == "a.py:3 (in models/layers.py:7)"
    assert words.own_and_library(Location("a.py", 3, "f")) == "a.py:3"
    assert words.own_and_library(replace(location, caller=None)) == "models/layers.py:7"


@pytest.mark.slow
def test_lines_of_a_notebook_are_named_by_their_cell():
    pytest.importorskip("IPython", reason="IPython is an optional package")
    program = """
        import sys
        from IPython.core.interactiveshell import InteractiveShell
        shell = InteractiveShell.instance()
        shell.run_cell("import torch, dynx", store_history=True)
        shell.run_cell("def f(x):\\n    return x + 1\\n\\nf = torch.compile(f, backend='eager')", store_history=True)
        shell.run_cell("with dynx.watch() as run:\\n    f(torch.ones(2))\\n    f(torch.ones(3))", store_history=True)
        (finding,) = shell.user_ns["run"].findings
        print(finding.location, "|", finding.called_from, "|", "In [2]:2" in shell.user_ns["run"]._repr_html_())
        sys.stdout.flush()
        __import__("os")._exit(0)
    """
    command = [sys.executable, "-c", textwrap.dedent(program)]
    output = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert output.stdout.splitlines()[-1] == "In [2]:2 in f | In [3]:3 in <module> | True", output.stderr
