"""`guards.profile`: what the guards of a call cost, and the cheapest way to have them checked that is safe."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from dynx._torch.cache.entry import RawEntry
from dynx._torch.cache.entry_runs import FrameRun, frames_run
from dynx._torch.cache.guard_timing import GuardTimes, TimedNode
from dynx._torch.cache.guard_tree import tree_of
from dynx._torch.compilation.frame import resumed_at
from dynx._trace import subscribers
from dynx._trace.guard_records import node_of
from dynx.errors import UsageError
from dynx.guards._cache.hits import not_counting
from dynx.guards._cache.owner import CacheOwner, cache_owner
from dynx.guards._cache.target import definition_of, location_of
from dynx.guards._cost.dict_tags import Marking
from dynx.guards._cost.settings import DICT_TAGS, plan, settings
from dynx.records import CostNode, FrameCost, GuardCosts, GuardNode, GuardSetting, Location
from dynx.records.record import IN_PROCESS

_SECONDS = 0.8  # of timing guards, shared by the frames of the call
_CALL_SECONDS = 0.2
_CALLS = 10
_TRIES = 3


@dataclass(frozen=True, slots=True, repr=False)
class GuardProfile(GuardCosts):
    """What checking guards costs in one call, and a way to have it cheaper."""

    owner: CacheOwner = field(default=CacheOwner((), None, None), compare=False, repr=False, metadata=IN_PROCESS)

    def apply(self, setting: str | None = None) -> Marking:
        """Have the guards of this function checked as `advice` says, or as the setting of this name; gives a handle.

        Only what drops no guard can be applied to compiled code: "dict tags". Raises UsageError for other settings, and where
        no cheaper one is safe: then name the one whose `misses` you accept.
        """
        chosen = self.advice if setting is None else next((each for each in self.settings if each.name == setting), None)
        if chosen is None:
            raise UsageError(
                f"no setting {setting!r} was measured, or it is in use\n"
                f"  there is {', '.join(each.name for each in self.settings)}"
            )
        if chosen.name == DICT_TAGS:
            return Marking(self.owner)
        if chosen == self.settings[0]:
            raise UsageError(_nothing_cheaper(self.settings[1:]))
        raise UsageError(f"{chosen.name} drops guards, which torch can only do when it compiles\n  write {chosen.how}")


def profile(compiled: Any, /, *args: Any, **kwargs: Any) -> GuardProfile:
    """Time the guards of a call, part by part, and the ways to have them checked that would cost less.

    **Makes the call about a dozen times**, to find the frames that it runs and to time the whole of it: what it does to the
    program, such as an optimizer's step, happens as often. In one of them it stops before each frame, for about a second in
    all, to time copies of the guards; guards with code of the user's own run thousands of times. Guards are timed as a loop
    has them, with the processor's cache warm; between long steps they cost more. The frames are those of the function and of
    its rests after graph breaks, not of functions that these call.

    `settings` are the one in use and what could be chosen instead, with the nanoseconds that each would take and the changes
    that it would miss; `advice` is the cheapest that misses none, which is the one in use where all others miss something;
    `apply(name)` has another from then on. Raises UsageError for a call that runs nothing compiled or compiles each time, and
    what the call raises.

    >>> import torch
    >>> from dynx import guards
    >>> model = torch.compile(torch.nn.Sequential(*(torch.nn.Linear(4, 4) for _ in range(8))), backend="eager")
    >>> costs = guards.profile(model, torch.ones(2, 4))
    >>> costs.frames[0].size > 50 and 0 < costs.share < 1
    True
    """
    owner = cache_owner(compiled)

    def call() -> object:
        return compiled(*args, **kwargs)

    call()  # compiles, where it has to
    frames = _measured(call, _entries_run(call, owner, definition_of(compiled)))
    return GuardProfile(
        definition_of(compiled),
        _nanoseconds(call),
        tuple(each.cost() for each in frames),
        settings([(each.planned, each.count) for each in frames]),
        owner=owner,
    )


def _entries_run(call: Callable[[], object], owner: CacheOwner, place: Location) -> list[RawEntry]:
    """List the versions that a call runs. Raises UsageError where there are none."""
    before = entries = owner.entries()
    for _ in range(_TRIES):
        if runs := frames_run(call, entries):
            return runs
        before, entries = entries, owner.entries()
    if len(before) != len(entries):
        raise UsageError(f"every call of {place.function} compiles again\n  dynx.guards.recompiles() says why")
    raise UsageError(
        f"this call of {place.function} runs nothing that is compiled\n"
        "  give what torch.compile made; where it is, dynx.would_recompile(compiled, ...) says why"
    )


def _measured(call: Callable[[], object], runs: list[RawEntry]) -> list[_Frame]:
    """Make a call, and time the guards of each frame right before it begins, when they hold."""
    counts = Counter(id(each.guards) for each in runs)
    found: dict[int, _Frame] = {}

    def measure(run: FrameRun) -> None:
        if (key := id(run.entry.guards)) not in found:
            with not_counting(run.entry.guards):
                found[key] = frame = _Frame(run, max(1, counts[key]))
                frame.measure(_SECONDS / len(counts))

    frames_run(call, runs, measure)
    for each in found.values():
        if not each.hold:
            raise UsageError(
                f"a guard of {location_of(each.entry.code).function} held in the call and not right after: it cannot be timed"
                "\n  guards.inspect lists them; one may run code that changes what it looks at"
            )
    return list(found.values())


class _Frame:
    """A frame of the call, being measured."""

    def __init__(self, run: FrameRun, count: int) -> None:
        self.entry, self.count = run.entry, count
        tree = tree_of(run.entry.guards)
        facts = subscribers.facts_of(run.entry.compile_id)
        self._guards = node_of(tree, run.entry.code, facts.requests if facts is not None else None)
        self._times = GuardTimes(tree, run.locals)
        self.planned = plan(self._times, tree, self._guards, run.locals, run.globals)
        self.hold = bool(tree.manager.check(dict(run.locals)))

    def measure(self, seconds: float) -> None:
        self._times.measure(seconds)

    def cost(self) -> FrameCost:
        tree = _cost(self._times.parts(), self._guards)
        code = self.entry.code
        return FrameCost(self.entry.compile_id, location_of(code), self._times.whole, tree, self.count, resumed_at(code))


def _cost(timed: TimedNode, node: GuardNode) -> CostNode:
    children = tuple(_cost(each, below) for each, below in zip(timed.children, node.children, strict=True))
    return CostNode(node.source, node.type, timed.total, timed.own, node.guards, children)


def _nanoseconds(call: Callable[[], object]) -> float:
    """Give the nanoseconds of the fastest of several calls."""
    clock, best, end = time.perf_counter_ns, float("inf"), time.perf_counter() + _CALL_SECONDS
    for done in range(_CALLS):
        start = clock()
        call()
        best = min(best, clock() - start)
        if done >= 2 and time.perf_counter() > end:
            break
    return best


def _nothing_cheaper(others: tuple[GuardSetting, ...]) -> str:
    drops_none = [each for each in others if each.name == DICT_TAGS]
    if not drops_none:
        return "no cheaper setting is safe: all that were measured drop guards"
    misses = "".join(f"\n    {each}" for each in drops_none[0].misses)
    return f"no cheaper setting is safe in every case\n  {drops_none[0].how} has dict tags, which miss{misses}"
