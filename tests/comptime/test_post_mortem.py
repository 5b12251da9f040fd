"""`post_mortem`: the innermost line and its value stack for every kind of graph break, without changing the compilation."""

from __future__ import annotations

import contextlib
import linecache
import sys
import warnings

import pytest
import torch
from break_kinds import KINDS
from fingerprint import alive, fingerprint
from torch._dynamo import symbolic_convert

from dynx.comptime import post_mortem
from dynx.errors import UsageError


def load(source, file):
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    namespace = {"torch": torch}
    exec(compile(source, file, "exec"), namespace)
    return namespace


@pytest.mark.parametrize("name", KINDS)
def test_post_mortem_state_has_the_innermost_line_and_its_value_stack(name, tmp_path):
    kind = KINDS[name]
    file = str(tmp_path / "program.py")
    line = next(n for n, text in enumerate(kind.source.splitlines(), 1) if "# here" in text)
    program = load(kind.source, file)
    with post_mortem() as pm, warnings.catch_warnings(), contextlib.suppress(RuntimeError):
        warnings.simplefilter("ignore")
        torch.compile(program["f"], backend="eager")(*program["args"])
    states = [state for state in pm.breaks if (state.location.file, state.location.line) == (file, line)]
    # from Python 3.12 on, bytecode has the condition of a loop twice; the second one breaks in another way
    expected = 2 if name == "while" and sys.version_info >= (3, 12) else 1
    assert len({state.cause for state in states}) == len(states) == expected, [(str(s.location), s.reason) for s in pm.breaks]
    state = states[0]
    innermost = state.frames[0]
    assert innermost.location.function == kind.function
    assert innermost.location.column is not None
    assert state.frames[-1].location.function in ("f", kind.function)
    if kind.top is not None:
        assert innermost.stack[-1] == kind.top
    assert all(not local.startswith("___") for frame in state.frames for local in frame.locals)
    assert state.reason
    assert state.graph.startswith("def forward(self")
    assert state.guards


def breaking(x):
    y = x + 1
    print(end="")
    return y * 2


def test_post_mortem_changes_no_graph_bytecode_or_guard():
    args = (torch.ones(3),)
    plain = fingerprint(breaking, args, contextlib.nullcontext())
    assert plain[0]
    assert plain[2]
    assert fingerprint(breaking, args, post_mortem()) == plain


def test_post_mortem_has_one_record_for_each_cause_of_graph_breaks():
    def f(x):
        return breaking(x) + breaking(x)

    with post_mortem() as pm:
        torch.compile(f, backend="eager", dynamic=False)(torch.ones(3))
        torch.compile(f, backend="eager", dynamic=False)(torch.ones(4))
    (state,) = pm.breaks
    assert state.count > 1
    assert [frame.location.function.rpartition(".")[2] for frame in state.frames] == ["breaking", "f"]
    assert state.frames[0].locals == {"x": "Tensor(float32, [3])", "y": "Tensor(float32, [3])"}


def test_post_mortem_on_break_is_called_once_for_each_cause_of_graph_breaks():
    states = []
    with post_mortem(on_break=states.append) as pm:
        torch.compile(breaking, backend="eager")(torch.ones(3))
    assert states == list(pm.breaks)


def test_post_mortem_records_the_state_of_a_failed_compilation():
    with post_mortem() as pm, pytest.raises(torch._dynamo.exc.Unsupported):
        torch.compile(breaking, backend="eager", fullgraph=True)(torch.ones(3))
    (state,) = pm.breaks
    assert state.location.line == breaking.__code__.co_firstlineno + 2


@pytest.mark.slow
def test_leaving_post_mortem_restores_the_instruction_translator_and_keeps_no_tensor():
    counts = []
    for _ in range(3):  # torch itself keeps some tensors of each compilation
        torch.compile(breaking, backend="eager")(torch.ones(3))
        counts.append(alive())
    original = vars(symbolic_convert.InstructionTranslatorBase)["step"]
    with post_mortem():
        assert symbolic_convert.InstructionTranslatorBase.step is not original
        with post_mortem() as inner:
            torch.compile(breaking, backend="eager")(torch.ones(3))
    assert symbolic_convert.InstructionTranslatorBase.step is original
    assert len(inner) == 1
    assert alive() - counts[-1] <= counts[-1] - counts[-2]


def test_exception_in_post_mortem_on_break_warns_and_the_program_continues():
    def fail(state):
        raise KeyError("state")

    with pytest.warns(UserWarning, match="KeyError"), post_mortem(on_break=fail):
        assert torch.compile(breaking, backend="eager")(torch.ones(1)).item() == 4


def test_post_mortem_with_an_invalid_callback_or_entered_twice_raises():
    with pytest.raises(UsageError, match="on_break is 3, which is not callable"):
        post_mortem(on_break=3)
    with post_mortem() as pm, pytest.raises(UsageError, match="is open already"):
        pm.__enter__()
