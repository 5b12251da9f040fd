"""The label of a corpus program: what costs compile time in it, why, on which line, and changes that remove the cost.

A label is the TOML file beside the program:

    asked = "https://github.com/huggingface/transformers/issues/12345"   # or a sentence: who writes such a program
    family = "training loops"
    written = "before"           # the rules were changed for this corpus, "after", or in a "third" to "ninth" set

    [[costs]]
    kind = "recompile"           # recompile | graph break | gave up | failed
    lines = ["self.step += 1"]   # texts of the lines, each once in the program, that a finding may name; best first
    cause = "self.step, a Python number, is new in each call"     # for people
    names = ["self.step"]        # texts that a report of the cause has to contain, as the user writes them
    count = 7                    # recompiles in torch's log that have this cause; for breaks, the lines that break
    [[costs.fixes]]              # none: nobody can remove this cost (`unavoidable` says why)
    advice = "tensor"            # regular expression: advice that matches it asks for this change
    leaves = 1                   # events that stay, such as the one recompile after which a size is dynamic; 0 unless given
    [[costs.fixes.edits]]        # the old text has to occur exactly once
    old = "self.step = 0"
    new = "self.step = torch.tensor(0)"
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

WRITTEN = ("before", "after", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth")
KINDS = ("recompile", "graph break", "gave up", "failed")


@dataclass(frozen=True)
class Fix:
    """A change to the program that removes one cost; `advice` is a regular expression for advice that asks for it."""

    advice: str
    edits: tuple[tuple[str, str], ...]
    leaves: int = 0


@dataclass(frozen=True)
class Cost:
    """A cause of recompiles, graph breaks, a function at its limit or an exception."""

    kind: str
    lines: tuple[str, ...]
    cause: str
    names: tuple[str, ...]
    count: int
    fixes: tuple[Fix, ...]
    unavoidable: str


@dataclass(frozen=True)
class Label:
    """The label of one program; a program without costs must have no findings."""

    asked: str
    family: str
    written: str
    costs: tuple[Cost, ...]


def read_label(program: Path) -> Label:
    """Read the label beside `program`; raises ValueError if it does not fit the program."""
    data = tomllib.loads(program.with_suffix(".toml").read_text())
    source = program.read_text()
    costs = tuple(_cost(each, source) for each in data.get("costs", []))
    if data["written"] not in WRITTEN:
        raise ValueError(f"written = {data['written']!r}")
    return Label(data["asked"], data["family"], data["written"], costs)


def _cost(data: dict[str, Any], source: str) -> Cost:
    unknown = data.keys() - {"kind", "lines", "cause", "names", "count", "fixes", "unavoidable"}
    if unknown or data["kind"] not in KINDS:
        raise ValueError(f"unknown keys {sorted(unknown)} or kind {data['kind']!r}")
    fixes = tuple(
        Fix(each["advice"], tuple((edit["old"], edit["new"]) for edit in each["edits"]), each.get("leaves", 0))
        for each in data.get("fixes", [])
    )
    unavoidable = data.get("unavoidable", "")
    if bool(fixes) == bool(unavoidable):
        raise ValueError(f"{data['cause']!r} needs either fixes or `unavoidable`")
    for line in data["lines"]:
        line_of(line, source)
    for fix in fixes:
        re.compile(fix.advice)
        apply(fix, source)
    return Cost(data["kind"], tuple(data["lines"]), data["cause"], tuple(data["names"]), data["count"], fixes, unavoidable)


def line_of(text: str, source: str) -> int:
    """Return the number of the only line of `source` that contains `text`."""
    numbers = [number for number, line in enumerate(source.splitlines(), 1) if text in line]
    if len(numbers) != 1:
        raise ValueError(f"{text!r} is on {len(numbers)} lines of the program, not on one")
    return numbers[0]


def apply(fix: Fix, source: str) -> str:
    """Return `source` with the edits of a fix."""
    for old, new in fix.edits:
        if source.count(old) != 1:
            raise ValueError(f"{old!r} occurs {source.count(old)} times in the program, not once")
        source = source.replace(old, new)
    return source
