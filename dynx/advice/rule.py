"""Classes of advice rules, by what they examine: recompiles, graph breaks, a whole run, or saved tensors.

A rule has an id, a title, a function that says whether it applies, and functions that return the texts and fixes of its
findings. A finding is an occurrence of the problem, with its line, cost and advice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from dynx.records.compile import Compile
from dynx.records.finding import Alternative, Finding, joined
from dynx.records.fix import Fix, Mark
from dynx.records.graph_break import GraphBreak
from dynx.records.location import Location
from dynx.records.observed import Specialized
from dynx.records.recompile import Reason, Recompile
from dynx.records.run_records import RunRecords
from dynx.records.saved import SavedGraph, SavedTensor
from dynx.records.what_if import WhatIf


class FrameKey(NamedTuple):
    """Key of a compiled frame, unique in a run.

    Frame ids repeat after `torch._dynamo.reset()`; `generation` counts the resets.
    """

    generation: int
    frame: str  # frame id: "0" of the compile id "0/1"


class Advice(NamedTuple):
    """Advice of a rule: alternatives, the best first, and whether the number of recompiles is bounded."""

    alternatives: tuple[Alternative, ...]
    is_expected: bool = False  # the number of recompiles is bounded: one per mode, per class, per object

    def __str__(self) -> str:
        return joined(self.alternatives)

    def with_first(self, *ways: str | Alternative) -> Advice:
        """Return this advice with further alternatives before its own."""
        return self._replace(alternatives=(*_alternatives(ways), *self.alternatives))

    def with_last(self, *ways: str | Alternative) -> Advice:
        """Return this advice with further alternatives after its own."""
        return self._replace(alternatives=(*self.alternatives, *_alternatives(ways)))


def one_of(*ways: str | Alternative) -> Advice:
    """Return advice with alternatives, the best first; a text is what only the user can do."""
    return Advice(_alternatives(ways))


def expected(*ways: str | Alternative) -> Advice:
    """Return an `Advice` that says to expect a bounded number of recompiles, such as one per mode (`is_expected` is True)."""
    return Advice(_alternatives(ways), is_expected=True)


def _alternatives(ways: Iterable[str | Alternative]) -> tuple[Alternative, ...]:
    return tuple(Alternative(way) if isinstance(way, str) else way for way in ways)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """An advice rule; its documentation page is `docs/rules/<id>.md`.

    Attributes:
        id: The id, such as "DX203"; the first digit is the family.
        title: The problem that the rule detects.
        priority: If several rules apply to a guard or graph break, the highest priority wins, then the lowest id. A comment
            explains each priority other than 0.
    """

    id: str
    title: str
    priority: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RecompileRule(Rule):
    """A rule about recompiles.

    Attributes:
        applies: Whether the rule applies to the first failed guard of a recompile.
        advice: Returns the advice on a group of recompiles with the same cause.
        fixes: Returns the fixes for `dynx fix`, the smallest change first.
        is_size: Whether the changed value is a size, stride or number of dims: it comes from the program, not a library.
        is_common: Whether the changed value may have different names in the parts of a function that a graph break split. The
            recompiles of these parts then share one finding.
    """

    applies: Callable[[Reason], bool]
    advice: Callable[[Cause], Advice]
    fixes: Callable[[Cause], Iterable[Fix]] = lambda cause: ()
    is_size: bool = False
    is_common: Callable[[Reason], bool] = lambda reason: False


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakRule(Rule):
    """A rule about why a graph breaks.

    Attributes:
        applies: Whether the rule applies to a graph break.
        title_of: Returns the title of the finding.
        advice: Returns the advice.
        fixes: Returns the fixes for `dynx fix`, the smallest change first.
        is_call: Whether the graph break is at a call. Findings of such rules at one line are merged: `open()` in a `with`
            breaks the graph twice.
        is_consequence: Whether the graph break follows from an earlier one in the same compilation, whose finding includes it.
        is_expected: Whether the graph break needs no change, so that it is no finding.
        is_fallback: Whether a finding of another rule at the same line includes the graph break.
    """

    applies: Callable[[GraphBreak], bool]
    title_of: Callable[[GraphBreak], str]
    advice: Callable[[GraphBreak], Advice]
    fixes: Callable[[GraphBreak], Iterable[Fix]] = lambda graph_break: ()
    is_call: bool = False
    is_consequence: bool = False
    is_expected: bool = False
    is_fallback: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceRule(Rule):
    """A rule about where a graph breaks: in a library, or in a block that cannot be resumed.

    `advice` also gets the `BreakRule` that applies to the graph break, or None, and may return the advice of that rule.
    """

    applies: Callable[[GraphBreak], bool]
    title_of: Callable[[GraphBreak], str]
    advice: Callable[[GraphBreak, BreakRule | None], Advice]
    is_call: bool = False
    is_consequence: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRule(Rule):
    """A rule that searches all records of a run.

    Attributes:
        find: Returns the findings in the records of a run.
        is_merged: Whether findings at the same line are merged into one, with the title of the first.
    """

    find: Callable[[RunRecords], Iterable[Finding]]
    is_merged: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class LossRule(Rule):
    """A rule that finds tensors which `dynx.saved` stores or recomputes for backward with too little precision for gradients.

    Attributes:
        loss: Returns the tensors of a graph to which the rule applies, with title and advice; None if there are none.
    """

    loss: Callable[[SavedGraph], Loss | None]


class Loss(NamedTuple):
    """The tensors of one graph that `dynx.saved` stores with too little precision, and the title and advice of a finding."""

    tensors: Sequence[SavedTensor]
    title: str
    advice: str

    @property
    def location(self) -> Location | None:
        return self.tensors[0].location


@dataclass(frozen=True, slots=True)
class Cause:
    """Recompiles of one function that have the same cause: the same advice rule and the same changed value."""

    rule: RecompileRule
    recompiles: tuple[Recompile, ...]
    together: tuple[Mark, ...] = ()  # other sizes that changed in the same way
    varying: tuple[Mark, ...] = ()  # all sizes of arguments that changed in any recompile of the function
    called_from: Location | None = None  # of the first recompile
    fixed: Specialized | None = None  # the line that fixed the size or number to one value after it was symbolic
    after: GraphBreak | None = None  # the graph break after which the function resumes
    whole: FrameKey | None = None  # the function that this function is a part of; itself if no graph break split it
    is_used_elsewhere: bool = False  # graph breaks split the function, or backward passes are captured: they may use the value
    apart: GraphBreak | None = None  # the graph break in a caller, because of which the function is compiled on its own
    allowed: int | None = None  # the recompile limit that the function reached
    first_call: Location | None = None  # the line that called the function when it was first compiled
    advice_after: str = ""  # how to remove the graph break after which the function resumes
    hidden_by: Reason | None = None  # the failed guard that torch reports in its place
    is_static: bool = False  # compiled with dynamic=False: each size and number is compiled on its own
    what_ifs: tuple[WhatIf, ...] = ()  # fixes that were tried on calls of the function while the program ran
    elsewhere: tuple[WhatIf, ...] = ()  # arguments of torch.compile that were tried on calls of its other parts

    @property
    def is_captured(self) -> bool:
        """Whether it is a backward pass that compiled autograd captured, which runs the code of hooks."""
        return self.recompiles[0].id.startswith("!")

    @property
    def first(self) -> Reason:
        """The first failed guard of the first recompile."""
        return self.recompiles[0].reasons[0]

    @property
    def last(self) -> Reason:
        """The first failed guard of the last recompile."""
        return self.recompiles[-1].reasons[0]


def is_caused_by(compile: Compile, graph_break: GraphBreak) -> bool:
    """Return whether a graph break caused a compilation, or made torch give it up.

    A graph break causes the compilation of its resume function; torch gives a compilation up if it cannot resume.
    """
    if compile.resumes is None:
        return not graph_break.resumable and compile.outcome in ("skipped", "failed") and compile.key in graph_break.compiles
    return any(line.file == compile.location.file and line.line == compile.resumes for line in graph_break.chain)
