"""`guards.profile`: time the guards of a call, and find the fastest setting of torch that still detects every change."""

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
from dynx._trace.guards.records import node_of
from dynx.errors import UsageError
from dynx.guards._cache.hits import not_counting
from dynx.guards._cache.owner import CacheOwner, cache_owner
from dynx.guards._cache.target import definition_of, location_of
from dynx.guards._cost.dict_tags import Marking
from dynx.guards._cost.settings import DICT_TAGS, plan, settings
from dynx.records import CostNode, FrameCost, GuardCosts, GuardNode, GuardSetting, Location
from dynx.records.record import IN_PROCESS

_GUARD_SECONDS = 0.8  # spent on timing guards, divided among the frames of the call
_CALL_SECONDS = 0.2  # after which no further calls are timed
_MAX_CALLS = 10
_MIN_CALLS = 3
_MAX_COMPILES = 3  # calls that may compile before one runs cached code only


@dataclass(frozen=True, slots=True, repr=False)
class GuardProfile(GuardCosts):
    """How long checking guards takes in one call, with the present settings of torch and with settings that may be faster."""

    owner: CacheOwner = field(default=CacheOwner((), None, None), compare=False, repr=False, metadata=IN_PROCESS)

    def apply(self, setting: str | None = None) -> Marking:
        """Apply one of `settings` to the guards of this callable; `remove()` of the returned handle ends this.

        Args:
            setting: The name of one of `settings`. Only "dict tags" can be applied to code that is compiled already, since it
                drops no guards. Default: `advice`, the cheapest setting that misses no change.

        Raises:
            UsageError: No setting has this name; the setting drops guards; or the setting is in use already. If `advice` is
                in use already, pass "dict tags" if you accept the changes in its `misses`.
        """
        chosen = self.advice if setting is None else next((known for known in self.settings if known.name == setting), None)
        if chosen is None:
            raise UsageError(
                f"setting {setting!r} is not one of the measured settings, or it is the one in use\n"
                f"  valid choices: {', '.join(known.name for known in self.settings[1:]) or 'none'}"
            )
        if chosen.name == DICT_TAGS:
            return Marking(self.owner)
        if chosen == self.settings[0]:
            raise UsageError(_nothing_cheaper(self.settings[1:]))
        raise UsageError(
            f"setting {chosen.name!r} drops guards, so it cannot be applied to code that is compiled already\n"
            f"  compile with {chosen.how}"
        )


def profile(compiled: Any, /, *args: Any, **kwargs: Any) -> GuardProfile:
    """Time the guards of a call for each guarded value, and compare settings that would check them faster.

    **Makes the call about a dozen times**, to find the frames that it runs and to time it as a whole: side effects, such as an
    optimizer step, happen each time. One of these calls pauses before each frame, for about a second in total, to time copies
    of the guards; guards that run your code run it thousands of times. Guards are timed in a loop, with a warm processor cache;
    between long computations they cost more. Only frames of the function and its resume functions are profiled, not of the
    functions that they call.

    Args:
        compiled: What torch.compile or dynx.compile returned for a function, method or module.
        *args: Positional arguments of the call.
        **kwargs: Keyword arguments of the call.

    Returns:
        A profile: `frames` with nanoseconds per guarded value; `settings`, each with its nanoseconds and the changes that it
        would miss, the setting in use first; and `advice`, the cheapest setting that misses nothing. `apply(name)` switches to
        another setting.

    Raises:
        UsageError: The call runs no compiled code, or compiles each time.
        Exception: Any exception that the call raises.

    Example:
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

    call()  # compiles, if no entry fits
    location = definition_of(compiled)
    frames = _measured_frames(call, _entries_run(call, owner, location))
    return GuardProfile(
        location,
        _nanoseconds(call),
        tuple(frame.cost() for frame in frames),
        settings([(frame.planned, frame.times) for frame in frames]),
        owner=owner,
    )


def _entries_run(call: Callable[[], object], owner: CacheOwner, location: Location) -> list[RawEntry]:
    """List the cache entries that a call runs; an entry that runs twice is listed twice. Raises UsageError if none runs."""
    before = entries = owner.entries()
    for _ in range(_MAX_COMPILES):
        if runs := frames_run(call, entries):
            return runs
        before, entries = entries, owner.entries()
    if len(before) != len(entries):
        raise UsageError(
            f"the guards cannot be profiled, because every call of {location.function} compiles again\n"
            "  dynx.watch() reports why"
        )
    raise UsageError(
        f"this call of {location.function} runs no compiled code\n"
        "  pass what torch.compile returned; if you did, dynx.would_recompile(compiled, ...) reports why"
    )


def _measured_frames(call: Callable[[], object], runs: list[RawEntry]) -> list[_Frame]:
    """Make the call and time the guards of each frame in `runs` right before the frame begins, when the guards hold."""
    counts = Counter(id(entry.guards) for entry in runs)
    frames: dict[int, _Frame] = {}

    def measure(run: FrameRun) -> None:
        if (key := id(run.entry.guards)) not in frames:
            with not_counting(run.entry.guards):
                frames[key] = frame = _Frame(run, max(1, counts[key]))
                frame.timing.measure(_GUARD_SECONDS / len(counts))

    frames_run(call, runs, measure)
    for frame in frames.values():
        if not frame.hold:
            raise UsageError(
                f"the guards of {location_of(frame.entry.code).function} cannot be timed: they held in the call, but not when"
                " evaluated again\n  look in guards.inspect(fn) for a guard that changes what it checks"
            )
    return list(frames.values())


class _Frame:
    def __init__(self, run: FrameRun, times: int) -> None:
        self.entry, self.times = run.entry, times  # times: how often the call runs the entry
        tree = tree_of(run.entry.guards)
        facts = subscribers.facts_of(run.entry.compile_id, run.entry.guards)
        self._guards = node_of(tree, run.entry.code, facts.requests if facts is not None else None)
        self.timing = GuardTimes(tree, run.locals)
        self.planned = plan(self.timing, tree, self._guards, run.locals, run.globals)
        self.hold = bool(tree.manager.check(dict(run.locals)))

    def cost(self) -> FrameCost:
        tree = _cost(self.timing.parts(), self._guards)
        code = self.entry.code
        return FrameCost(self.entry.compile_id, location_of(code), self.timing.whole, tree, self.times, resumed_at(code))


def _cost(timed: TimedNode, node: GuardNode) -> CostNode:
    """Return a tree of CostNodes, made of the measured times of a guard tree and the record of its guards."""
    children = tuple(_cost(timed_child, child) for timed_child, child in zip(timed.children, node.children, strict=True))
    return CostNode(node.source, node.type, timed.total, timed.own, node.guards, children)


def _nanoseconds(call: Callable[[], object]) -> float:
    """Make several calls and return the duration of the fastest, in nanoseconds."""
    clock, best, end = time.perf_counter_ns, float("inf"), time.perf_counter() + _CALL_SECONDS
    for number in range(1, _MAX_CALLS + 1):
        start = clock()
        call()
        best = min(best, clock() - start)
        if number >= _MIN_CALLS and time.perf_counter() > end:
            break
    return best


def _nothing_cheaper(others: tuple[GuardSetting, ...]) -> str:
    dict_tags = next((setting for setting in others if setting.name == DICT_TAGS), None)
    if dict_tags is None:
        return "no cheaper setting is safe: all that were measured drop guards"
    misses = "".join(f"\n    {change}" for change in dict_tags.misses)
    return f"no cheaper setting is safe in every case\n  {dict_tags.how} applies dict tags, which miss{misses}"
