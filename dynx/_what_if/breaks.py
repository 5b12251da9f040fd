"""Try the fixes of a graph break on the call whose trace it ended."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from dynx._torch.compilation.frame import is_skip
from dynx._torch.retracing.retrace import Frame, Retraced, retrace
from dynx._torch.shapes.profile_copies import in_use, profile_now
from dynx._trace.compile_scope import CompileKey, graph_break
from dynx._what_if.budget import Budget
from dynx._what_if.rewritten import rewritten
from dynx._what_if.setups import Setup, setup_of
from dynx.advice.findings.resumed import frame_of
from dynx.advice.rules import rule_by_reason
from dynx.records.fix import Fix
from dynx.records.graph_break import GraphBreak
from dynx.records.location import Location
from dynx.records.what_if import WhatIf, WhatIfOutcome

_FREE = 3  # fixes of a graph break that may take more of the budget, until one helps


@dataclass
class BreakFixes:
    """The fixes for graph breaks of a run that were tried: one time for each function and cause."""

    budget: Budget
    _tried: set[Any] = field(default_factory=set)

    def tried_on(
        self, frame: Frame, key: CompileKey, location: Location, found: GraphBreak, seconds: float
    ) -> Iterator[WhatIf]:
        """Trace a call with each fix of the graph break `found` that was not tried on this function; yield the results.

        `seconds` is how long a trace may take.
        """
        rule = rule_by_reason(found)
        if rule is None:
            return
        of_function = frame_of(key)
        free = _FREE
        for fix in rule.fixes(found):
            name = of_function, found.cause, fix
            if name in self._tried or (fix.kind != "rewrite" and setup_of(fix) is None):
                continue
            self._tried.add(name)
            about = (*of_function, location, rule.id, fix)
            if self.budget.allows(seconds, is_free=free > 0):
                setups = self._setups(fix)
                results = [each for setup in setups if (each := self._trace(frame, key, about, setup, found))]
                if not results:
                    continue  # the line cannot be rewritten, or the function was not traced
                best = next((each for each in results if each.helps), results[0])
                free = 0 if best.helps else free - 1
                yield best
            else:
                reason = "the time for what-ifs was used up"
                yield WhatIf(*about, "not proven", 1, 0, reason, graph_break=found.cause)

    def _setups(self, fix: Fix) -> Iterator[Setup]:
        """Yield how each way to write a fix changes a trace."""
        if fix.kind != "rewrite":
            if (setup := setup_of(fix)) is not None:
                yield setup
            return
        began = time.perf_counter()
        codes = list(rewritten(fix))
        self.budget.spent += time.perf_counter() - began
        yield from (Setup(code=code, written=text) for code, text in codes)

    def _trace(
        self, frame: Frame, key: CompileKey, about: tuple[int, str, Location, str, Fix], setup: Setup, found: GraphBreak
    ) -> WhatIf | None:
        result = self._retraced(frame, setup)
        if setup.code is not None and not setup.code.is_used:
            return None
        breaks = [graph_break(raw, key, None, about[2]) for raw in result.breaks]
        then = next((each for each in breaks if each.cause != found.cause), None)
        outcome: WhatIfOutcome = "removes"
        reason = ""
        if result.guards is None and result.raised is None:
            outcome, reason = "not proven", "it runs code at compile time, such as a callback of comptime"
        elif any(each.cause == found.cause for each in breaks):
            outcome = "no effect"
        elif result.raised is not None and not is_skip(result.raised):
            outcome, reason = "raises", type(result.raised).__name__
        elif then is not None:
            outcome = "leads to another"
        is_of_line = then is not None and then.cause[:2] == found.cause[:2]
        if setup.code is not None and (outcome in ("no effect", "raises") or is_of_line):
            happens = f"raises {reason}" if reason else "breaks the graph too"
            outcome, reason = "not proven", f"as dynx fix writes it, it {happens}"  # the user may write it in another way
        return WhatIf(*about, outcome, 1, 1, reason, result.seconds, found.cause, then, setup.written)

    def _retraced(self, frame: Frame, setup: Setup) -> Retraced:
        changed = setup.change(frame.locals)
        assert changed is not None  # no fix of a graph break replaces a value
        with setup.in_effect(), in_use(profile_now()):
            result = retrace(setup.frame(frame), changed)
        self.budget.spent += result.seconds
        return result
