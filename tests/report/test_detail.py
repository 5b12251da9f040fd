"""The guards and the graph code of a compilation, as the terminal and the notebook show them."""

from __future__ import annotations

import io

from rich.console import Console

from dynx import Run
from dynx.records import CodeLine, CompiledGuards, GraphCode, GuardInfo, Location
from dynx.report import terminal

NET = Location("model.py", 56, "Net.forward")
STEP = Location("model.py", 58, "Net.forward")
GUARDS = (
    GuardInfo("object", "torch.nn.modules.linear", "<class 'module'>", STEP),
    GuardInfo("value", "self._modules['layer'].step", "3", STEP, (STEP,), "EQUALS_MATCH", "L['self'] == 3"),
    GuardInfo("attribute", "x._dynamo_static_indices", "absent", STEP),
    GuardInfo("global_state", "", None, None),
    GuardInfo("function", "self.act", None, None),
)
CODE = (
    CodeLine("def forward(self, L_x_ : <tensor>):"),
    CodeLine("    l_x_ = L_x_", STEP),
    CodeLine("    sin = l_x_.sin()", STEP),
    CodeLine("    add = sin + 1", NET),
    CodeLine("    return (add,)"),
)
RUN = Run((CompiledGuards(0, "0/0", NET, GUARDS, 7), GraphCode(0, "0/0", NET, CODE, 2)))


def shown(run, *, full, width=100):
    console = Console(width=width, file=io.StringIO(), color_system=None)
    console.print(terminal(run, full=full))
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


def test_full_terminal_report_lists_guards_on_values_and_the_graph_code():
    lines = shown(RUN, full=True)
    assert lines[lines.index(" Guards") :] == [
        " Guards",
        "     0/0  Net.forward  model.py:56  12 guards",
        "          self.layer.step  3  (value)  model.py:58  Net.forward",
        "          self.act  (function)",
        "          torch.nn.modules.linear  <class 'module'>  (object)  model.py:58  Net.forward",
        "          and 9 more",
        "",
        " Graphs",
        "     0/0  Net.forward  model.py:56",
        "          def forward(self, L_x_ : <tensor>):",
        "              l_x_ = L_x_  # model.py:58",
        "              sin = l_x_.sin()",
        "              add = sin + 1  # model.py:56",
        "              return (add,)",
        "          … 2 more lines",
    ]
    assert " Guards" not in shown(RUN, full=False)


def test_terminal_view_of_guards_and_graph_code_fits_the_terminal_width():
    assert max(map(len, shown(RUN, full=True, width=40))) <= 40


def test_notebook_report_shows_every_guard_and_the_escaped_graph_code():
    page = RUN._repr_html_()
    assert "<pre>def forward(self, L_x_ : &lt;tensor&gt;):\n    l_x_ = L_x_  # model.py:58\n" in page
    assert "<td>self.layer.step</td><td>3</td><td>value</td><td>model.py:58  Net.forward</td>" in page
    assert "x._dynamo_static_indices" in page
    assert "and 7 more, not saved" in page


def test_terminal_report_truncates_the_code_of_a_long_graph():
    graph = GraphCode(0, "0/0", NET, tuple(CodeLine(f"x{n} = 1") for n in range(100)))
    lines = shown(Run((graph,)), full=True)
    assert "          … 60 more lines" in lines
    assert "x99 = 1" in Run((graph,))._repr_html_()
