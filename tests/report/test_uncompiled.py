"""A run in which nothing was compiled says why, as far as that was recorded, and what to do."""

from __future__ import annotations

import io
import textwrap

import pytest
import torch
from rich.console import Console

from dynx import Run
from dynx.guards import would_recompile
from dynx.records import Compile, Location, Skipped
from dynx.report import terminal
from dynx.session import Watch, outcome_of, watch

HERE = Location("train.py", 41, "main")
UNKNOWN = "why is not known"

PROGRAMS = {
    "the stance force_eager": (
        """
        torch.compiler.set_stance("force_eager")
        f = torch.compile(lambda x: x + 1, backend="eager")
        f(torch.ones(3))
        """,
        'the stance "force_eager" was set in a call at program.py:3',
        'torch.compiler.set_stance("default")',
    ),
    "the stance force_eager in a block": (
        """
        f = torch.compile(lambda x: x + 1, backend="eager")
        with torch.compiler.set_stance("force_eager"):
            f(torch.ones(3))
        """,
        'the stance "force_eager" was set in a call at program.py:3',
        'torch.compiler.set_stance("default")',
    ),
    "config.disable": (
        """
        with torch._dynamo.config.patch(disable=True):
            torch.compile(lambda x: x + 1, backend="eager")(torch.ones(3))
        """,
        "torch._dynamo.config.disable ",
        "unset TORCH_COMPILE_DISABLE",
    ),
    "the variable TORCHDYNAMO_DISABLE": (
        """
        import os
        os.environ["TORCHDYNAMO_DISABLE"] = "1"
        try:
            torch.compile(lambda x: x + 1, backend="eager")(torch.ones(3))
        finally:
            del os.environ["TORCHDYNAMO_DISABLE"]
        """,
        "torch.compile returned functions as they are: TORCHDYNAMO_DISABLE=1",
        "unset the variable",
    ),
    "the argument disable": (
        'torch.compile(lambda x: x + 1, backend="eager", disable=True)(torch.ones(3))',
        "torch.compile returned functions as they are: disable=True",
        "remove it",
    ),
    "torch.compiler.disable of a compiled function": (
        'torch.compiler.disable(torch.compile(lambda x: x + 1, backend="eager"))(torch.ones(3))',
        "1 function was passed to torch.compile, but not called, or only under torch.compiler.disable",
        "call the function that torch.compile returns",
    ),
    "a dispatch mode": (
        """
        from torch.utils._python_dispatch import TorchDispatchMode
        class Counts(TorchDispatchMode):
            def __torch_dispatch__(self, func, types, args=(), kwargs=None):
                return func(*args, **(kwargs or {}))
        with Counts():
            torch.compile(lambda x: x + 1, backend="eager")(torch.ones(3))
        """,
        "a torch dispatch mode ",
        "call the function outside of the mode",
    ),
    "a function that returns its argument": (
        'torch.compile(lambda x: x, backend="eager")(torch.ones(3))',
        "its first call has no tensor operation to compile",
        "compile the function that computes",
    ),
    "a function without tensors": (
        'torch.compile(lambda n: n + 1, backend="eager")(3)',
        "its first call has no tensor ",
        "compile the function that",
    ),
    "a compiled function that is never called": (
        'f = torch.compile(lambda x: x + 1, backend="eager")',
        "1 function was passed to torch.compile, but not called",
        "call the function that torch.compile returns",
    ),
    "a program without torch.compile": (
        "print(torch.ones(3))",
        "no call of torch.compile in this process returned a function",
        "model = torch.compile(model)",
    ),
    "an unknown backend whose error is handled": (
        """
        try:
            torch.compile(lambda x: x + 1, backend="egaer")
        except Exception:
            pass
        """,
        "torch.compile raised InvalidBackend: Invalid backend: 'egaer'",
        "torch._dynamo.list_backends() lists the backends",
    ),
    "an unknown backend": (
        'torch.compile(lambda x: x + 1, backend="egaer")',
        "torch.compile raised InvalidBackend: Invalid backend: 'egaer'",
        "torch._dynamo.list_backends() lists the backends",
    ),
    "a program that raises before": (
        """
        f = torch.compile(lambda x: x + 1, backend="eager")
        f(torch.ones(3) @ torch.ones(4))
        """,
        "but not called, or only under torch.compiler.disable or while traced; the program ended with RuntimeError",
        "",
    ),
    "a program that exits before": (
        "import sys; sys.exit(3)",
        "no call of torch.compile in this process returned a function; the program ended with exit 3",
        "",
    ),
}


GIVES_REASONS = hasattr(torch._dynamo.types.ConvertFrameReturn(), "skip_reason")  # since torch 2.13
if not GIVES_REASONS:
    for name in ("a function that returns its argument", "a function without tensors"):
        PROGRAMS[name] = (PROGRAMS[name][0], "Dynamo skipped it, and torch gives no reason", "TORCH_LOGS=+dynamo")


def executed(source, folder, monkeypatch):
    """Run a program as `dynx run` does, and return its run."""
    file = folder / "program.py"
    file.write_text(textwrap.dedent(source).lstrip())
    monkeypatch.chdir(folder)
    opened = Watch(command=["dynx", "run", "program.py"])
    opened.__enter__()
    error = None
    try:
        exec(compile(file.read_text(), str(file), "exec"), {"torch": torch, "__name__": "__main__"})
    except BaseException as raised:  # noqa: BLE001 - whatever the program raises
        error = raised
    finally:
        torch.compiler.set_stance("default")
        opened.close(outcome=outcome_of(error))
    return opened.run


def screen(run, **options):
    console = Console(width=400, file=io.StringIO())
    console.print(terminal(run, **options))
    return console.file.getvalue()


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_report_says_why_nothing_was_compiled(name, tmp_path, monkeypatch):
    source, reason, advice = PROGRAMS[name]
    run = executed(source, tmp_path, monkeypatch)
    text = screen(run)
    assert "nothing was compiled" in text
    assert reason in text
    assert advice in text
    assert ("→" in text) == bool(advice)
    assert UNKNOWN not in text
    assert "nothing to change" not in text
    assert reason.split("  ")[0] in run._repr_html_().replace("&#34;", '"').replace("&#39;", "'")


def test_the_reason_is_in_the_run_file(tmp_path, monkeypatch):
    """`dynx show` prints it."""
    run = executed(PROGRAMS["the argument disable"][0], tmp_path, monkeypatch)
    run.save(tmp_path / "run.dynx")
    assert "disable=True" in screen(Run.load(tmp_path / "run.dynx"))


def test_a_dispatch_mode_is_named(tmp_path, monkeypatch):
    text = screen(executed(PROGRAMS["a dispatch mode"][0], tmp_path, monkeypatch))
    assert "Counts" in text
    assert "program.py:" in text


def test_a_watch_of_calls_that_were_compiled_before_does_not_guess():
    f = torch.compile(lambda x: x + 1, backend="eager")
    f(torch.ones(3))
    with watch() as w:
        f(torch.ones(3))
    text = screen(w.run)
    assert "a compiled function was called at " in text
    assert "why is not known: it may have been compiled or skipped before" in text


def test_a_run_without_the_record_does_not_guess():
    """Files of an older dynx, and of programs that were killed."""
    assert f"{UNKNOWN}: the run does not have it" in screen(Run((), {}, {"seconds": 1.0}))
    assert f"{UNKNOWN}: the program did not end" in screen(Run())


def test_a_run_that_compiled_something_records_nothing_more():
    with watch() as w:
        torch.compile(lambda x: x + 1, backend="eager")(torch.ones(3))
    assert w.uses == ()
    assert "nothing to change" in screen(w.run)


def test_an_empty_block_records_nothing():
    with watch() as w:
        pass
    assert w.events == ()


def test_a_skip_that_torch_explains_in_other_words_is_quoted():
    run = Run((Skipped(HERE, "a reason of tomorrow"),), {}, {"seconds": 1.0})
    assert "train.py:41  main: Dynamo skipped it: a reason of tomorrow" in screen(run)


def test_skipped_functions_are_counted_if_there_are_many():
    skips = tuple(Skipped(Location("train.py", line, "f"), "frame is in the Dynamo skipfiles list") for line in range(1, 20))
    text = screen(Run(skips, {}, {"seconds": 1.0}))
    assert text.count("Dynamo skips its file") == 5
    assert "and 14 more functions that Dynamo skipped: --full shows all" in text


def test_a_skipped_compilation_does_not_count_as_one():
    run = Run((Compile(0, "0/0", HERE, "skipped", 0.1, reason="No ops traced for the FX graph."),), {}, {"seconds": 1.0})
    assert "nothing was compiled" in screen(run)
    assert "nothing to change" not in screen(run)


def test_the_hooks_of_calls_are_gone_after_the_first_one():
    """Later calls of compiled functions cost nothing."""
    from dynx._torch.hooks import installed

    f = torch.compile(lambda x: x + 1, backend="eager")
    with watch():
        assert any("_callback_from_stance" in path for path in installed())
        f(torch.ones(3))
        assert not any("_callback_from_stance" in path for path in installed())
    assert installed() == ()


def test_a_question_of_dynx_is_no_call_of_the_program():
    f = torch.compile(lambda x: x + 1, backend="eager")
    with watch() as w:
        would_recompile(f, torch.ones(3))
    assert not any(use.called for use in w.uses)
