"""`dynx.watch()` is neutral: outputs, graphs, bytecode, guards, counters and compile counts are the same without it."""

from __future__ import annotations

import contextlib
import io
import sys
import types
from pathlib import Path

import pytest
import torch
from programs_runner import PROGRAMS, restored_torch
from support.unnumbered import code_of, normalized
from torch._dynamo import convert_frame, output_graph, utils
from torch._dynamo.eval_frame import _debug_get_cache_entry_list

import dynx
from dynx._torch.capabilities import HOOK_POINTS
from dynx._torch.hooks import owner_of

EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("*.py"))
# every kind of event at least once; tests/advice tests the findings of all programs
CHOSEN = [
    PROGRAMS / name
    for name in (
        "recompiles/dtype_and_size_differ.py", "recompiles/validation_under_no_grad.py", "recompiles/enum_mode_argument.py",
        "breaks/disabled_helper.py", "breaks/compiled_generator.py", "breaks/graph_break_in_try_finally.py",
        "breaks/warn_on_option.py", "breaks/logger_debug_in_step.py", "breaks/timer_in_layer.py",
        "limits/global_step_counter.py", "library/logging_layer.py",
    )
]  # fmt: skip


def observe(path):
    """Run a program with empty caches and return all outcomes that watching might change."""
    graphs, bytecode = [], []
    call = output_graph.OutputGraph.call_user_compiler

    def recording(self, gm, *args, **kwargs):
        graphs.append(normalized(gm.print_readable(print_output=False)))
        return call(self, gm, *args, **kwargs)

    module = types.ModuleType("program")
    module.__file__ = str(path)
    out, err = io.StringIO(), io.StringIO()
    utils.counters.clear()
    output_graph.OutputGraph.call_user_compiler = recording
    hook = convert_frame.register_bytecode_hook(lambda old, new: bytecode.append(code_of(new)))
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            sys.modules["program"] = module
            exec(compile(path.read_text(), str(path), "exec"), module.__dict__)
    finally:
        output_graph.OutputGraph.call_user_compiler = call
        hook.remove()
    guards = [normalized(str(entry.guard_manager)) for code in codes() for entry in _debug_get_cache_entry_list(code)]
    return {
        "stdout": out.getvalue(),
        "graphs": graphs,
        "bytecode": bytecode,
        "guards": sorted(guards),
        "counters": {
            name: {normalized(key): count for key, count in values.items()} for name, values in utils.counters.items()
        },
        "compiles": [
            (metrics.co_name, metrics.guard_count, metrics.graph_op_count) for metrics in utils.get_compilation_metrics()
        ],
    }


def codes():
    return [code for reference in convert_frame.input_codes.seen if (code := reference()) is not None]


@pytest.mark.parametrize("detail", ["normal", "full"])
@pytest.mark.parametrize(
    "path", [*(pytest.param(example, marks=pytest.mark.slow) for example in EXAMPLES), *CHOSEN], ids=lambda path: path.stem
)
def test_watch_changes_no_output_graph_bytecode_guard_or_counter(path, detail, monkeypatch):
    monkeypatch.setattr(sys, "argv", [str(path)])
    utils.clear_compilation_metrics()
    with restored_torch():
        observe(path)  # the first run in a process warms caches of torch that later runs find
    utils.clear_compilation_metrics()
    with restored_torch():
        without = observe(path)
    utils.clear_compilation_metrics()
    with restored_torch(), dynx.watch(detail=detail) as watch:
        watched = observe(path)
    assert watch.compiles or watch.graph_breaks, "no event was recorded, so the comparison proves nothing"
    for kind, outcome in without.items():
        assert watched[kind] == outcome, kind


def test_watch_restores_every_hooked_attribute_by_identity():
    def raw(point):
        try:
            owner, name = owner_of(point.path)
        except AttributeError:
            return None
        return vars(owner).get(name)

    before = [raw(point) for point in HOOK_POINTS]
    with dynx.watch():
        inside = [raw(point) for point in HOOK_POINTS]
        torch.compile(lambda x: x + 1, backend="eager")(torch.ones(3))
    after = [raw(point) for point in HOOK_POINTS]
    assert all(a is b for a, b in zip(before, after, strict=True))
    assert all(a is not b for a, b in zip(before, inside, strict=True) if a is not None)
