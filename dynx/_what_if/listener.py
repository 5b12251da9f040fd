"""`WhatIfs`: try the fixes of the findings of a run on its calls, as they are compiled."""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

from dynx._run import Run
from dynx._torch.cache.guard_failures import holds
from dynx._torch.retracing.modes import in_modes
from dynx._torch.retracing.retrace import Frame
from dynx._torch.shapes.profile_copies import copy_of, profile_at_start, profile_now
from dynx._trace.compile_scope import CompileKey, graph_break
from dynx._trace.source_names import in_frame
from dynx._what_if.breaks import BreakFixes
from dynx._what_if.budget import Budget
from dynx._what_if.earlier_calls import KeptCall, keep
from dynx._what_if.first_sizes import first_sizes
from dynx._what_if.setups import Setup, joined, setup_of
from dynx._what_if.variant import ENOUGH, Earlier, Proposal, Variant
from dynx.advice.facts.names import spoken
from dynx.advice.findings.causes import causes
from dynx.advice.findings.recompiles import advice_on
from dynx.advice.findings.resumed import frame_of
from dynx.advice.rule import Cause
from dynx.records.backward import BackwardCapture
from dynx.records.compile import Compile
from dynx.records.fix import Fix
from dynx.records.graph_break import GraphBreak
from dynx.records.location import Location
from dynx.records.recompile import Recompile
from dynx.records.record import Record, frame_id
from dynx.records.what_if import WhatIf, WhatIfOutcome

_Key = tuple[int, str]  # generation and frame id
# traces that may take more of the budget, of the first fix of a finding that is not refuted, and of others in its advice
_OF_FIRST = 3
_OF_PRINTED = 1  # shows whether it raises, or leads to a graph break
_ENOUGH_IF_FIXED = 2  # compilations that show that a fix does not help, if a line needs the exact value


class _Earlier(NamedTuple):
    """A call for which a function was compiled, and the guards of this compilation, if they are still in the cache."""

    kept: KeptCall
    guards: Callable[[], Any]

    def restored(self, now: Mapping[str, Any]) -> Earlier | None:
        """Return the call to trace it again; None if it is gone, or if something else that was guarded has changed since."""
        guards = self.guards()
        if guards is None:
            return None
        with in_modes(self.kept.modes):
            both = (self.kept.variables(now, copies=copies) for copies in (False, True))
            same = next((each for each in both if each is not None and holds(guards, each)), None)
        return Earlier(same, self.kept.modes) if same is not None else None


@dataclass(eq=False)
class _Function:
    """What is known about a function (a frame) that torch has compiled."""

    profile: Any  # torch's profile before the first call; None if torch had none
    calls: list[_Earlier] = field(default_factory=list)  # for which it was compiled
    seconds: float = 0.0  # that torch needed to trace a call
    variants: dict[frozenset[Fix], Variant] = field(default_factory=dict)  # by the fixes that are in effect
    said: dict[tuple[str, Fix, tuple[Fix, ...]], WhatIf] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class _Call:
    """A call for which torch compiles a function again."""

    function: _Function
    key: _Key
    frame: Frame
    recompile: Recompile

    @cached_property
    def earlier(self) -> list[Earlier | None]:
        """The earlier calls for which the function was compiled."""
        return [call.restored(self.frame.locals) for call in self.function.calls]

    @cached_property
    def changed(self) -> dict[str, str | None]:
        """The values of the first call that are other ones now, by source."""
        failed, first = (*self.recompile.reasons, *self.recompile.further), self.function.calls[0]
        changed = {spoken(reason.source): reason.expected for reason in failed}
        if (guards := first.guards()) is not None:
            changed |= first_sizes(guards, self.frame)
        return changed | first.kept.changed(self.frame.locals)


class WhatIfs:
    """Listener of compilations that tries fixes, and emits a `WhatIf` record whenever more is known about one.

    Args:
        emit: called with each record.
        records: returns all records so far.
        share: of the compile time that the traces may take.
    """

    def __init__(self, emit: Callable[[Record], None], records: Callable[[], Sequence[Record]], share: float) -> None:
        self._budget = Budget(share)
        self._breaks = BreakFixes(self._budget)
        self._emit, self._records = emit, records
        self._functions: dict[_Key, _Function] = {}

    def on_frame(self, frame: Frame, generation: int, compile_id: str) -> Callable[[Sequence[Record], Any], None]:
        """Begin with a compilation; return a function that takes its records and guards when it has ended."""
        key = generation, frame_id(compile_id)
        if key not in self._functions:
            self._functions[key] = _Function(profile_now())
        function, kept = self._functions[key], keep(frame.locals)
        return lambda records, guards: self._done(function, key, frame, kept, records, guards)

    def _done(
        self, function: _Function, key: _Key, frame: Frame, kept: KeptCall, records: Sequence[Record], guards: Any
    ) -> None:
        compiled = next(record for record in records if isinstance(record, Compile))
        recompile = next((record for record in records if isinstance(record, Recompile)), None)
        self._budget.compiling += compiled.seconds
        function.seconds = _seconds_of_tracing(compiled)
        for found in (record for record in records if isinstance(record, GraphBreak)):
            compile_key = CompileKey(*compiled.key)
            for what_if in self._breaks.tried_on(frame, compile_key, compiled.location, found, function.seconds):
                self._emit(what_if)
        if recompile is not None:
            met = self._met(_Call(function, key, frame, recompile))
            for variant in function.variants.values():
                is_superseded = variant not in met and variant.raised is None and not variant.unknown
                if is_superseded:  # by another fix, such as one with two marks
                    variant.unknown = "later calls were not traced with it"
                if any(reason.by_backend for reason in recompile.reasons) and variant.raised is None:
                    variant.unknown = "the backend adds guards, and no backend runs in a trace"
                if compiled.outcome == "failed" and variant.raised is None:
                    variant.unknown = "the backend failed in a call, and no backend runs in a trace"
                for record in self._what_ifs(CompileKey(*compiled.key), compiled.location, variant):
                    about = record.rule, record.fix, record.together
                    if record != function.said.get(about):
                        function.said[about] = record
                        self._emit(record)
        function.calls.append(_Earlier(kept, weakref.ref(guards) if guards is not None else lambda: None))

    def _met(self, call: _Call) -> list[Variant]:
        """Trace a call with each fix that rules propose for recompiles of the function, and return the variants.

        Several causes may have the same fix, such as `dynamic=True` for two numbers. If the recompile has several causes, and
        no fix of one of them saves a compilation, one fix of each cause is tried together.
        """
        name = call.recompile.location.function
        own = Run(
            tuple(
                record
                for record in self._records()
                if _function_of(record) == name or _frame_of(record) == call.key or isinstance(record, BackwardCapture)
            )
        )
        met: list[Variant] = []
        possible: list[tuple[Cause, Variant]] = []  # the first fix of each cause of this recompile that does not fail
        more: list[Iterator[Variant]] = []  # further fixes, tried when every cause had one
        for cause in causes(own):
            if frame_of(cause.recompiles[0].key) == call.key:
                of_cause = self._of_cause(call, cause, met)
                first = next((each for each in of_cause if each.raised is None and not each.breaks and not each.unknown), None)
                if first is not None and any(recompile.key == call.recompile.key for recompile in cause.recompiles):
                    possible.append((cause, first))
                more.append(of_cause)
        if (together := self._together(call, possible)) is not None:
            together.meet(call.frame, call.frame.locals)
            met.append(together)
        for of_cause in more:
            deque(of_cause, maxlen=0)  # each is tried
        return met

    def _of_cause(self, call: _Call, cause: Cause, met: list[Variant]) -> Iterator[Variant]:
        """Yield a variant for each fix of a cause, and add it to `met` after the call was traced with it."""
        printed = {each.does for each in advice_on(cause).alternatives}
        proposed = sorted(cause.rule.fixes(cause), key=lambda fix: fix.name not in printed)  # stable
        refuted = True  # all fixes so far
        for fix in proposed:
            setup, proposal = setup_of(fix), Proposal(cause.rule.id, fix)
            known = call.function.variants.get(frozenset([fix]))
            if setup is None or (known is None and _is_needless(fix, met)):
                continue
            if known is None:
                helps = not refuted or any(each.saves for each in call.function.variants.values() if len(each.fixes) > 1)
                free = _OF_FIRST if not helps else _OF_PRINTED if fix.name in printed else 0
                enough = _ENOUGH_IF_FIXED if cause.fixed is not None else ENOUGH
                known = self._begun(call, [proposal], setup_of(_in_frame(fix, call.frame)) or setup, free, enough)
            elif proposal not in known.proposals:
                known.proposals.append(proposal)
            if known not in met:
                known.meet(call.frame, call.frame.locals)
                met.append(known)
            yield known
            refuted = refuted and (known.is_refuted or not known.traces)  # or it cannot be tried on this function

    def _together(self, call: _Call, possible: Sequence[tuple[Cause, Variant]]) -> Variant | None:
        """Return the variant with several fixes; a new one, with a fix of each cause, if none saves a compilation by itself."""
        known = next((each for each in call.function.variants.values() if len(each.fixes) > 1), None)
        if known is not None:
            single = [each for each in call.function.variants.values() if each.fixes < known.fixes and each.saves]
            if not known.unknown and any(each.is_open and each.compiles <= known.compiles for each in single):
                known.unknown = "one of these fixes is enough"
            return known
        proposals = list(dict.fromkeys(_among_others(cause, first) for cause, first in possible))
        fixes = list(dict.fromkeys(fix for _, fix in proposals))
        setups = [setup for fix in fixes if (setup := setup_of(_in_frame(fix, call.frame))) is not None]
        setup = joined(setups) if len(setups) == len(fixes) else None
        if setup is None or len(fixes) < 2 or any(first.saves or first.calls == 1 for _, first in possible):
            return None
        return self._begun(call, proposals, setup, _OF_FIRST)

    def _begun(self, call: _Call, proposals: list[Proposal], setup: Setup, free: int, enough: int = ENOUGH) -> Variant:
        """Return a new variant of the function that has met its earlier calls."""
        profile = profile_at_start() if call.function.profile is None else copy_of(call.function.profile)
        variant = Variant(proposals, setup, profile, self._budget, call.function.seconds, free, enough)
        call.function.variants[variant.fixes] = variant
        variant.begin(call.frame, call.earlier, call.changed)
        return variant

    def _what_ifs(self, key: CompileKey, location: Location, variant: Variant) -> Iterator[WhatIf]:
        known = {found.cause for found in Run(tuple(self._records())).graph_breaks}
        breaks = [graph_break(raw, key, None, location) for raw in variant.breaks]
        then = next((each for each in breaks if each.cause not in known or variant.is_eager), None)
        outcome: WhatIfOutcome = "not proven"
        reason = variant.unknown
        if variant.raised is not None:
            outcome, reason = "raises", type(variant.raised).__name__
        elif then is not None:
            outcome = "leads to another"
        elif not variant.unknown:
            outcome = "removes" if variant.compiles == 1 else "fewer" if variant.compiles < variant.calls else "no effect"
        for number, (rule, fix) in enumerate(variant.proposals):
            others = tuple(dict.fromkeys(other for _, other in variant.proposals if other != fix))
            seconds = variant.seconds if number == 0 else 0.0  # of the same traces
            about = (*frame_of(key), location, rule, fix)
            yield WhatIf(*about, outcome, variant.calls, variant.compiles, reason, seconds, None, then, together=others)


def _among_others(cause: Cause, first: Variant) -> Proposal:
    """Return the fix of a cause to try with fixes of other causes: under `dynamic=False`, these need more than marks."""
    fix = first.proposals[0].fix
    options = (each for each in cause.rule.fixes(cause) if each.kind == "option")
    return Proposal(cause.rule.id, next(options, fix) if cause.is_static and fix.kind == "mark" else fix)


def _is_needless(fix: Fix, tried: Sequence[Variant]) -> bool:
    """Return whether a fix is a mark that torch may ignore, while the mark that it has to respect does not fail."""
    return any(fix.is_weaker_than(stronger) and each.raised is None for each in tried for stronger in each.fixes)


def _in_frame(fix: Fix, frame: Frame) -> Fix:
    """Return a fix with the sources that its marks have in a frame."""
    sources = (in_frame(mark.source, frame.code, frame.locals) for mark in fix.marks)
    return replace(fix, marks=tuple(replace(mark, source=source) for mark, source in zip(fix.marks, sources, strict=True)))


def _seconds_of_tracing(compiled: Compile) -> float:
    return sum(compiled.phases.get(phase, 0.0) for phase in ("trace", "guards")) or compiled.seconds


def _frame_of(record: Record) -> _Key | None:
    generation, compile_id = getattr(record, "generation", None), getattr(record, "id", None)
    return (generation, frame_id(compile_id)) if generation is not None and isinstance(compile_id, str) else None


def _function_of(record: Record) -> str | None:
    location = getattr(record, "location", None)
    return location.function if isinstance(location, Location) else None
