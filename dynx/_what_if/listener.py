"""`WhatIfs`: try the fixes of the findings of a run on its calls, as they are compiled."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
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
from dynx._what_if.setups import setup_of
from dynx._what_if.variant import Earlier, Variant, VariantKey
from dynx.advice.facts.names import spoken
from dynx.advice.findings.causes import causes
from dynx.advice.findings.recompiles import advice_on
from dynx.advice.findings.resumed import frame_of
from dynx.records.compile import Compile
from dynx.records.fix import Fix
from dynx.records.graph_break import GraphBreak
from dynx.records.location import Location
from dynx.records.recompile import Recompile
from dynx.records.record import Record
from dynx.records.what_if import WhatIf, WhatIfOutcome

_Key = tuple[int, str]  # generation and frame id
# traces that the budget always allows, of the first fix of a finding that is not refuted, and of others in its advice
_OF_FIRST = 3
_OF_PRINTED = 1  # shows whether it raises, or leads to a graph break


class _Call(NamedTuple):
    """A call for which a function was compiled, and the guards of this compilation, if they are still in the cache."""

    kept: KeptCall
    guards: Callable[[], Any]

    def restored(self, now: Mapping[str, Any]) -> Earlier | None:
        """Return the call to trace it again; None if it is gone, or if something else that was guarded has changed since."""
        guards = self.guards()
        if guards is None:
            return None
        with in_modes(self.kept.modes):
            variables = self.kept.variables(now)
            return Earlier(variables, self.kept.modes) if variables is not None and holds(guards, variables) else None


@dataclass(eq=False)
class _Function:
    """What is known about a function (a frame) that torch has compiled."""

    profile: Any  # torch's profile before the first call; None if torch had none
    calls: list[_Call] = field(default_factory=list)  # for which it was compiled
    seconds: float = 0.0  # that torch needed to trace a call
    variants: dict[VariantKey, Variant] = field(default_factory=dict)
    said: dict[VariantKey, WhatIf] = field(default_factory=dict)


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
        key = generation, compile_id.rpartition("/")[0]
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
            proposed = []
            for variant in self._proposed(function, key, frame, recompile):
                variant.meet(frame, frame.locals)
                proposed.append(variant)
            for variant in function.variants.values():
                is_superseded = variant not in proposed and variant.raised is None and not variant.unknown
                if is_superseded:  # by another fix, such as one with two marks
                    variant.unknown = "later calls were not traced with it"
                record = self._record(CompileKey(*compiled.key), compiled.location, variant)
                if record != function.said.get(variant.key):
                    function.said[variant.key] = record
                    self._emit(record)
        function.calls.append(_Call(kept, weakref.ref(guards) if guards is not None else lambda: None))

    def _proposed(self, function: _Function, key: _Key, frame: Frame, recompile: Recompile) -> Iterator[Variant]:
        """Yield a variant for each fix that rules propose for recompiles of a function; a new one gets the earlier calls.

        Several causes may have the same fix under one rule, such as `dynamic=True` for two numbers: it is yielded once.
        """
        name = recompile.location.function
        own = Run(tuple(record for record in self._records() if _function_of(record) == name or _frame_of(record) == key))
        earlier: list[Earlier | None] = []
        yielded: list[Variant] = []
        for cause in causes(own):
            if frame_of(cause.recompiles[0].key) != key:
                continue
            printed = {each.does for each in advice_on(cause).alternatives}
            proposed = sorted(cause.rule.fixes(cause), key=lambda fix: fix.name not in printed)  # stable
            fixes = [(fix, setup) for fix in proposed if (setup := setup_of(fix)) is not None]
            refuted = True  # all fixes so far
            for fix, setup in fixes:
                known = function.variants.get(VariantKey(cause.rule.id, fix))
                if known is not None and known in yielded:
                    continue
                if known is None and _is_weaker(fix, yielded):
                    continue
                if known is None:
                    profile = profile_at_start() if function.profile is None else copy_of(function.profile)
                    setup = setup_of(_in_frame(fix, frame)) or setup
                    free = _OF_FIRST if refuted else _OF_PRINTED if fix.name in printed else 0
                    known = Variant(cause.rule.id, fix, setup, profile, self._budget, function.seconds, free)
                    function.variants[known.key] = known
                    earlier = earlier or [call.restored(frame.locals) for call in function.calls]
                    failed = (*recompile.reasons, *recompile.further)
                    changed = {spoken(reason.source): reason.expected for reason in failed}
                    known.begin(frame, earlier, changed | function.calls[0].kept.changed(frame.locals))
                yielded.append(known)
                yield known
                refuted = refuted and (known.is_refuted or not known.traces)  # or it cannot be tried on this function

    def _record(self, key: CompileKey, location: Location, variant: Variant) -> WhatIf:
        known = {found.cause for found in Run(tuple(self._records())).graph_breaks}
        breaks = (graph_break(raw, key, None, location) for raw in variant.breaks)
        then = next((each for each in breaks if each.cause not in known), None)
        outcome: WhatIfOutcome = "not proven"
        reason = variant.unknown
        if variant.raised is not None:
            outcome, reason = "raises", type(variant.raised).__name__
        elif then is not None:
            outcome = "leads to another"
        elif not variant.unknown:
            outcome = "removes" if variant.compiles == 1 else "fewer" if variant.compiles < variant.calls else "no effect"
        about = (*frame_of(key), location, variant.rule, variant.fix)
        return WhatIf(*about, outcome, variant.calls, variant.compiles, reason, variant.seconds, None, then)


def _is_weaker(fix: Fix, tried: Sequence[Variant]) -> bool:
    """Return whether a fix is a mark that torch may ignore, while the mark that it has to respect needs one compilation."""
    strict = [each for each in tried if each.fix.kind == "mark" and each.fix.may_fail and each.fix.marks == fix.marks]
    return fix.kind == "mark" and not fix.may_fail and any(each.raised is None and each.compiles == 1 for each in strict)


def _in_frame(fix: Fix, frame: Frame) -> Fix:
    """Return a fix with the sources that its marks have in a frame."""
    sources = (in_frame(mark.source, frame.code, frame.locals) for mark in fix.marks)
    return replace(fix, marks=tuple(replace(mark, source=source) for mark, source in zip(fix.marks, sources, strict=True)))


def _seconds_of_tracing(compiled: Compile) -> float:
    return sum(compiled.phases.get(phase, 0.0) for phase in ("trace", "guards")) or compiled.seconds


def _frame_of(record: Record) -> _Key | None:
    generation, compile_id = getattr(record, "generation", None), getattr(record, "id", None)
    return (generation, compile_id.rpartition("/")[0]) if generation is not None and isinstance(compile_id, str) else None


def _function_of(record: Record) -> str | None:
    location = getattr(record, "location", None)
    return location.function if isinstance(location, Location) else None
