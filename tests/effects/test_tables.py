"""The tables of docs/effects.md hold on the installed torch: what is lost, and which methods of a container run."""

from __future__ import annotations

import re

import pytest
import torch
from documents import ROOT
from support import mutation_programs as mutations
from support import untimed_guards, user_calls

TEXT = (ROOT / "docs/effects.md").read_text()
RELEASE = ".".join(torch.__version__.split(".")[:2])


def rows(heading):
    """Return `(container, code, cell)` of the table under a heading, with the column of the installed torch."""
    table = TEXT.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    lines = [re.split(r"(?<!\\)\|", line)[1:-1] for line in table.splitlines() if line.startswith("|")]
    head, _, *body = [[cell.strip().replace("\\|", "|") for cell in line] for line in lines]
    assert head[-3:] == ["2.11", "2.13", "2.15"]
    column = head.index(RELEASE) if RELEASE in head else None
    return [(container, code, cells[column - 2]) for container, code, *cells in body] if column is not None else []


@pytest.mark.parametrize(("kind", "code", "verdict"), rows("What is lost, by release"))
def test_what_is_lost(kind, code, verdict):
    outcome = mutations.run(mutations.Program(kind, code.strip("`")))
    assert outcome.differs == (verdict == "lost")
    if verdict == "eager":
        assert not outcome.recorded


CALLS = [
    (kind, method, cell)
    for kinds, methods, cell in rows("Which methods of a container run")
    for kind in kinds.split(", ")
    for method in re.findall(r"`(\w+)`", methods)
]


@pytest.mark.parametrize(("kind", "method", "cell"), CALLS)
def test_which_methods_run(kind, method, cell, monkeypatch):
    monkeypatch.setattr(torch._dynamo.guards, "profile_guard_manager", untimed_guards.OF_TORCH)  # calls methods as well
    calls = user_calls.count(kind, method)
    assert method in calls.eager
    if calls.outcome != "compiled":
        assert calls.outcome == cell
        return
    first = [calls.first.get(phase, {}) for phase in ("tracing", "guards made", "replay")]
    numbers = [*map(sum_of, first), sum(map(sum_of, calls.later.values()))]
    assert " · ".join(map(str, numbers)) == cell
    assert {name for count in (*first, *calls.later.values()) for name in count} <= {"__len__", "__iter__"}


def sum_of(count):
    return sum(count.values())


def test_every_kind_and_method_is_in_the_table():
    if CALLS:
        assert {(kind, method) for kind, method, _ in CALLS} == {
            (kind, method) for kind in user_calls.KINDS for method in user_calls.methods_of(kind)
        }
