"""Dataclasses of advice rules: id, title, when the rule applies, and the texts and fixes of its findings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from dynx.records.compile import Compile
from dynx.records.finding import Finding
from dynx.records.fix import Fix, Mark
from dynx.records.graph_break import GraphBreak
from dynx.records.location import Location
from dynx.records.observed import Specialized
from dynx.records.recompile import Reason, Recompile
from dynx.records.run_records import RunRecords
from dynx.records.saved import SavedGraph, SavedTensor


class FrameKey(NamedTuple):
    """Key of a compiled frame, unique in a run: frame ids repeat after `torch._dynamo.reset()`, which begins a generation."""

    generation: int
    frame: str  # frame id: "0" of the compile id "0/1"


class Advice(NamedTuple):
    """The text of an advice, and two facts for functions that reach a recompile limit."""

    text: str
    is_expected: bool = False  # the number of recompiles is bounded: one per mode, per class, per object
    has_limit: bool = False  # the text names a recompile limit to raise


def expected(text: str) -> Advice:
    """Return advice on recompiles whose number is bounded."""
    return Advice(text, is_expected=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """An advice rule; its documentation page is `docs/rules/<id>.md`.

    Attributes:
        id: Such as "DX203"; the first digit is the family.
        title: The problem that the rule detects.
        priority: If several rules apply to a guard or graph break, the highest priority wins, then the lowest id. A comment
            explains each priority other than 0.
    """

    id: str
    title: str
    priority: int = 0


def no_fixes(about: object) -> Iterable[Fix]:
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RecompileRule(Rule):
    """A rule about recompiles.

    Attributes:
        applies: Whether the rule applies to the first failed guard of a recompile.
        advice: The advice on a cause.
        fixes: The fixes for `dynx fix`, the smallest change first.
        is_size: The value is a size, which the program passes even to code of a library.
        is_common: Whether parts of a function may name the value differently; their recompiles are one finding.
    """

    applies: Callable[[Reason], bool]
    advice: Callable[[Cause], Advice]
    fixes: Callable[[Cause], Iterable[Fix]] = no_fixes
    is_size: bool = False
    is_common: Callable[[Reason], bool] = lambda reason: False


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakRule(Rule):
    """A rule about why a graph breaks.

    Attributes:
        applies: Whether the rule applies to a graph break.
        title_of: The title of the finding.
        advice: The advice.
        fixes: The fixes for `dynx fix`, the smallest change first.
        is_call: The break is at a call. Several such rules at one line give one finding, as for `open()` in a `with`.
        is_consequence: If the compilation has another graph break, the break joins its finding.
    """

    applies: Callable[[GraphBreak], bool]
    title_of: Callable[[GraphBreak], str]
    advice: Callable[[GraphBreak], str]
    fixes: Callable[[GraphBreak], Iterable[Fix]] = no_fixes
    is_call: bool = False
    is_consequence: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceRule(Rule):
    """A rule about where a graph breaks: in a library, or in a block that cannot be resumed.

    `advice` also receives the rule about the reason of the graph break, or None, and may return the advice of that rule.
    """

    applies: Callable[[GraphBreak], bool]
    title_of: Callable[[GraphBreak], str]
    advice: Callable[[GraphBreak, BreakRule | None], str]
    is_call: bool = False
    is_consequence: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRule(Rule):
    """A rule that searches all records of a run.

    Attributes:
        find: The findings.
        is_merged: Findings at the same line are merged, with the title of the first.
    """

    find: Callable[[RunRecords], Iterable[Finding]]
    is_merged: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class LossRule(Rule):
    """A rule about codecs of `dynx.saved` that change gradients more than their precision suggests.

    Attributes:
        loss: The tensors of a graph to which the rule applies, with title and advice, or None.
    """

    loss: Callable[[SavedGraph], Loss | None]


class Loss(NamedTuple):
    """The tensors of one graph that a codec stores with too little precision."""

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
    apart: GraphBreak | None = None  # the graph break in a caller, because of which the function is compiled on its own
    allowed: int | None = None  # the recompile limit that the function reached
    first_call: Location | None = None  # the line that called the function when it was first compiled
    advice_after: str = ""  # how to remove the graph break after which the function resumes

    @property
    def first(self) -> Reason:
        """The first failed guard of the first recompile."""
        return self.recompiles[0].reasons[0]

    @property
    def last(self) -> Reason:
        """The first failed guard of the last recompile."""
        return self.recompiles[-1].reasons[0]


class RuleAtLine(NamedTuple):
    """Key by which findings are merged: an advice rule yields one finding for each source line."""

    rule: str
    file: str
    line: int


def is_caused_by(compile: Compile, graph_break: GraphBreak) -> bool:
    """Return whether a graph break caused a compilation: of its resume function, or of a function that now runs eagerly."""
    if compile.resumes is None:
        return not graph_break.resumable and compile.outcome in ("skipped", "failed") and compile.key in graph_break.compiles
    return any(line.file == compile.location.file and line.line == compile.resumes for line in graph_break.chain)
