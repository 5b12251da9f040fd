"""Every form of comptime callback at every call site: `ctx.log` records one event for each execution, at the right line."""

from __future__ import annotations

import linecache

import pytest
import torch
from comptime_places import CALL_SITES, FORMS

import dynx
import dynx.comptime


def assemble(call_site: str, form: str) -> tuple[str, int]:
    """Put a form of callback at a call site; return the source and the line of the call."""
    before, statement = FORMS[form]
    lines = (before + CALL_SITES[call_site].program).splitlines()
    index = next(i for i, line in enumerate(lines) if line.strip() == "@@")
    indent = lines[index].removesuffix("@@")
    inserted = [indent + line for line in statement.replace("@@", "").splitlines()]
    calls = [i for i, line in enumerate(inserted) if "comptime" in line]
    return "\n".join([*lines[:index], *inserted, *lines[index + 1 :]]), index + calls[0] + 1


def run_program(source: str, file: str) -> dynx.Run:
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    x = torch.ones(3)

    def run(f, *args, dynamic=None):
        torch.compile(f, backend="eager", dynamic=dynamic)(*args)

    with dynx.watch() as watch:
        exec(compile(source, file, "exec"), {"torch": torch, "comptime": dynx.comptime.comptime, "x": x, "run": run})
    return watch.run


CASES = [(call_site, form) for call_site in CALL_SITES for form in FORMS]


@pytest.mark.parametrize(("call_site", "form"), CASES)  # each form, and each call site
def test_comptime_callback_logs_one_event_for_each_execution_of_its_call(call_site, form, tmp_path):
    source, line = assemble(call_site, form)
    file = str(tmp_path / "program.py")
    logs = run_program(source, file).logs
    assert [(event.location.file, event.location.line) for event in logs] == [(file, line)] * CALL_SITES[call_site].hits
    assert {event.location.function for event in logs} == {CALL_SITES[call_site].function}
    assert {event.outcome for event in logs} == {"committed"}
    assert all(event.values["y"].startswith("Tensor(float32, [") for event in logs)
