"""The line below the summary: where the compile time of a run went."""

from __future__ import annotations

import io
import time

import pytest
import torch
from rich.console import Console

import dynx
from dynx import Run
from dynx.records import Backward, CacheEvent, Compile, Location, Reason, Recompile
from dynx.report import terminal

HERE = Location("train.py", 41, "main")
PHASES = {"trace": 1.0, "aot": 0.5, "backend": 4.0, "guards": 0.25}
SIZE = Reason("size", "x.size()[1]", "3", "4", HERE, holder="argument")


def compiled(id="0/0", backend="inductor", phases=PHASES, **more):
    return Compile(0, id, HERE, "compiled", sum(phases.values()), (), phases, backend=backend, **more)


def screen(run, width=200):
    console = Console(width=width, file=io.StringIO())
    console.print(terminal(run))
    return [line.strip() for line in console.file.getvalue().splitlines()]


def phase_lines(run, width=200):
    """Return the lines between the summary and the findings."""
    lines = screen(run, width)
    start = next(number for number, line in enumerate(lines) if " compiling " in line) + 1
    return lines[start : lines.index("", start)]


def test_phases_are_in_the_order_in_which_torch_runs_them_with_the_backend_by_name():
    """Four seconds of inductor must be seen at once: tracing would be mended in another way."""
    assert phase_lines(Run((compiled(),))) == ["Dynamo 1.0 s · AOTAutograd 500 ms · inductor 4.0 s · guards 250 ms"]


def test_longest_phase_is_highlighted():
    console = Console(width=200, file=io.StringIO(), force_terminal=True)
    console.print(terminal(Run((compiled(),))))
    assert "\x1b[1minductor 4.0 s\x1b[0m" in console.file.getvalue()


def test_phases_that_took_less_than_one_percent_are_omitted():
    phases = {"trace": 1.0, "aot": 0.0, "backend": 0.001, "guards": 0.5}
    assert phase_lines(Run((compiled(phases=phases),))) == ["Dynamo 1.0 s · guards 500 ms"]


def test_backends_of_one_run_have_a_part_each():
    parts = phase_lines(Run((compiled(), compiled("1/0", backend="eager"))))
    assert parts == ["Dynamo 2.0 s · AOTAutograd 1.0 s · inductor 4.0 s · backend eager 4.0 s · guards 500 ms"]


def test_first_compiles_recompiles_and_resume_functions_add_up_to_the_compile_time():
    run = Run(
        (
            compiled(),
            compiled("0/1"),
            Recompile(0, "0/1", HERE, (SIZE,), 5.75),
            Backward(0, "0/1", 2.0),
            compiled("1/0", resumes=50),
        )
    )
    assert run.compile_seconds == 19.25
    assert phase_lines(run)[0].endswith(
        "backward graphs 2.0 s   (first compiles 5.8 s, recompiles 7.8 s, resume functions 5.8 s)"
    )


def test_hits_misses_and_bypasses_of_the_compile_caches_are_counted():
    events = [CacheEvent("fx_graph", result, 0, "0/0", HERE, count=count) for result, count in (("miss", 1), ("hit", 3))]
    run = Run((compiled(), *events, CacheEvent("aot_autograd", "bypass", 0, "0/0", HERE, "a hook")))
    assert phase_lines(run)[0].endswith("   FX graph cache 3 hits, 1 miss · AOTAutograd cache 1 bypass")


@pytest.mark.parametrize("width", [40, 80, 120])
def test_on_a_narrow_terminal_no_part_is_split_over_two_lines(width):
    run = Run((compiled(), compiled("0/1"), CacheEvent("fx_graph", "miss", 0, "0/0", HERE)))
    lines = phase_lines(run, width)
    assert all(len(line) <= width - 2 for line in lines)
    for part in ("Dynamo 2.0 s", "AOTAutograd 1.0 s", "inductor 8.0 s", "guards 500 ms", "FX graph cache 1 miss"):
        assert any(part in line for line in lines)


def test_notebook_shows_the_same_phases_as_the_terminal():
    run = Run((compiled(), CacheEvent("fx_graph", "miss", 0, "0/0", HERE)))
    page = run._repr_html_()
    assert "Dynamo 1.0 s · AOTAutograd 500 ms · inductor 4.0 s · guards 250 ms" in page
    assert "FX graph cache 1 miss" in page


def test_phases_of_a_watched_compilation_add_up_to_its_compile_time():
    def double(x):
        return x * 2

    def sleeping(graph_module, example_inputs):
        time.sleep(0.2)  # a phase below 1 % is not shown, as that of "eager" beside the imports of the first compilation
        return graph_module.forward

    with dynx.watch() as w:
        torch.compile(double, backend=sleeping)(torch.ones(3))
    (line,) = phase_lines(w.run)
    assert line.startswith("Dynamo ")
    assert "backend sleeping" in line
    assert sum(w.compiles[0].phases.values()) == pytest.approx(w.run.compile_seconds)
