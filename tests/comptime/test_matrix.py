"""Every form of callback at every place: `ctx.log` shows exactly one event per logical hit, at the right line."""

from __future__ import annotations

import linecache

import pytest
import torch
from comptime_places import FORMS, PLACES

import dynx
import dynx.comptime


def assemble(place: str, form: str) -> tuple[str, int]:
    """Put a form into a place; gives the source and the line of the callback's statement."""
    before, statement = FORMS[form]
    lines = (before + PLACES[place].program).splitlines()
    index = next(i for i, line in enumerate(lines) if line.strip() == "@@")
    indent = lines[index].removesuffix("@@")
    at = [indent + line for line in statement.replace("@@", "").splitlines()]
    inside = [i for i, line in enumerate(at) if "comptime" in line]
    return "\n".join([*lines[:index], *at, *lines[index + 1 :]]), index + inside[0] + 1


def run_program(source: str, file: str) -> dynx.Run:
    linecache.cache[file] = (len(source), None, source.splitlines(True), file)
    x = torch.ones(3)

    def run(f, *args, dynamic=None):
        torch.compile(f, backend="eager", dynamic=dynamic)(*args)

    with dynx.watch() as watch:
        exec(compile(source, file, "exec"), {"torch": torch, "comptime": dynx.comptime.comptime, "x": x, "run": run})
    return watch.run


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("place", PLACES)
def test_one_event_per_logical_hit(place, form, tmp_path):
    source, line = assemble(place, form)
    file = str(tmp_path / "program.py")
    logs = run_program(source, file).logs
    assert [(each.location.file, each.location.line) for each in logs] == [(file, line)] * PLACES[place].hits
    assert {each.location.function for each in logs} == {PLACES[place].function}
    assert {each.outcome for each in logs} == {"committed"}
    assert all(each.values["y"].startswith("Tensor(float32, [") for each in logs)
