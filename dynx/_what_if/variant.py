"""`Variant`: the compilations that the calls of one function would need with one fix."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from dynx._torch.compilation.frame import is_skip
from dynx._torch.retracing.modes import Modes, in_modes
from dynx._torch.retracing.retrace import Frame, Guards, Retraced, retrace
from dynx._torch.shapes.profile_copies import in_use, set_values
from dynx._torch.tracing.graph_breaks import RawBreak
from dynx._what_if.budget import Budget
from dynx._what_if.conditions import requires
from dynx._what_if.setups import Setup, Variables
from dynx.advice.facts.names import spoken
from dynx.advice.facts.reasons import INT
from dynx.records.fix import Fix

ENOUGH = 3  # compilations after which a fix that saved none is not traced any more; one more for each further fix


class Proposal(NamedTuple):
    """A fix, and the advice rule that proposes it."""

    rule: str
    fix: Fix


class Earlier(NamedTuple):
    """An earlier call for which the function was compiled: its local variables, with tensors of equal metadata, and modes."""

    variables: Variables
    modes: Modes


@dataclass(eq=False)
class Variant:
    """One fix, or one for each of several causes, tried on the calls of one function for which torch compiles it.

    Attributes:
        proposals: the fixes that are in effect, each for every rule that proposes it.
        profile: torch's profile of dynamic sizes as it would be.
        budget: of all traces of the run.
        estimate: seconds that a trace may take.
        free: how many of its compilations may take more of the budget.
        enough: compilations after which it is not traced any more, if it saved none; one more for each further fix.
        entries: the guards of the compilations.
        compiles: their number; it includes a first call that could not be traced again.
        raised: what a trace raised; no further call is traced then.
        breaks: the graph breaks of the traces.
        unknown: why a call could not be traced; no further call is traced then.
        is_eager: whether that is because torch would not compile the function, after a graph break where it cannot resume.
        seconds: spent tracing.
        traces: their number.
    """

    proposals: list[Proposal]
    setup: Setup
    profile: Any
    budget: Budget
    estimate: float
    free: int
    enough: int = ENOUGH
    entries: list[Guards] = field(default_factory=list)
    compiles: int = 0
    calls: int = 0
    raised: BaseException | None = None
    breaks: list[RawBreak] = field(default_factory=list)
    unknown: str = ""
    is_eager: bool = False
    seconds: float = 0.0
    traces: int = 0

    @property
    def fixes(self) -> frozenset[Fix]:
        """The fixes that are in effect."""
        return frozenset(fix for _, fix in self.proposals)

    @property
    def saves(self) -> bool:
        """Whether a call was met that needs no compilation."""
        return self.compiles < self.calls

    @property
    def is_refuted(self) -> bool:
        """Whether the fix raised, leads to a graph break, or saves nothing."""
        return self.raised is not None or bool(self.breaks) or (not self.unknown and 1 < self.calls == self.compiles)

    @property
    def is_open(self) -> bool:
        """Whether further calls are traced."""
        is_enough = len(self.entries) >= self.enough + len(self.fixes) - 1 and not self.saves
        return self.raised is None and not self.unknown and not is_enough

    def begin(self, frame: Frame, earlier: Sequence[Earlier | None], changed: Mapping[str, str | None]) -> None:
        """Count the earlier calls for which the function was compiled: trace them again.

        None in `earlier` stands for a call that cannot be traced again. If there was only this call, the present call is traced
        as if it were the first. If its guards require the present value of a source in `changed`, which has the values of the
        first call, the first call would have been compiled on its own.
        """
        self.enough += max(len(earlier) - 1, 0)  # which may have other causes, that the fixes leave
        for call in earlier if list(earlier) != [None] else ():
            if call is None:
                self.unknown = "an earlier call cannot be traced again"
                return
            with in_modes(call.modes):
                self.meet(frame, call.variables)
        if self.calls:
            return
        self.calls = 1
        as_first = self._trace(frame, frame.locals)
        if as_first is None or as_first.guards is None:
            return
        self.compiles = 1
        texts = [spoken(text) for text in as_first.guards.texts()]
        if any(requires(text, source) for source in changed for text in texts):
            known = {source: int(value) for source, value in changed.items() if value is not None and INT.match(value)}
            set_values(self.profile, spoken, known)
        else:
            self.entries.append(as_first.guards)

    def meet(self, frame: Frame, variables: Variables) -> None:
        """Trace a call, unless the guards of an earlier compilation accept it."""
        if not self.is_open:
            return
        self.calls += 1
        changed = self.setup.change(variables)
        if changed is None:
            self.unknown = "an argument is not of the expected type"
        elif not any(guards.accept(frame, changed) for guards in self.entries):
            result = self._trace(frame, variables)
            if result is not None and result.guards is not None:
                self.entries.append(result.guards)
                self.compiles += 1

    def _trace(self, frame: Frame, variables: Variables) -> Retraced | None:
        changed = self.setup.change(variables)
        if changed is None:
            self.unknown = "an argument is not of the expected type"
            return None
        if not self.budget.allows(self.estimate, is_free=len(self.entries) < self.free):
            self.unknown = "the time for what-ifs was used up"
            return None
        with self.setup.in_effect(), in_use(self.profile):
            result = retrace(frame, changed)
        self.seconds += result.seconds
        self.breaks += result.breaks
        self.budget.spent += result.seconds
        self.traces += 1
        if result.guards is None and result.raised is None:
            self.unknown = "it runs code at compile time, such as a callback of comptime"
        elif result.raised is not None and is_skip(result.raised) and not frame.fullgraph:
            self.unknown = "the function runs eagerly with it"
            self.is_eager = True
        else:
            self.raised = result.raised
        return result
