"""`guards.profile`: what the guards of a call cost, and the cheapest way to have them checked that is safe."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from types import CodeType
from typing import Any
from weakref import ref

from dynx._torch.cache_entries import with_rests
from dynx._torch.frames import resumed_at
from dynx._torch.frames_run import FrameRun, frames_run
from dynx._torch.guard_timing import GuardTimes, TimedNode
from dynx._torch.guard_tree import tree_of
from dynx._trace import bus
from dynx._trace.guard_infos import node_of
from dynx.errors import UsageError
from dynx.guards._entries import location_of
from dynx.guards._marking import Marking
from dynx.guards._settings import DICT_TAGS, plan, settings
from dynx.guards._target import codes_of
from dynx.records import CostNode, FrameCost, GuardCosts, GuardNode, GuardSetting
from dynx.records.record import IN_PROCESS

_SECONDS = 0.8  # of timing guards, shared by the frames of the call
_CALL_SECONDS = 0.2
_CALLS = 100


@dataclass(frozen=True, slots=True, repr=False)
class GuardProfile(GuardCosts):
    """What checking guards costs in one call, and a way to have it cheaper."""

    codes: tuple[ref[CodeType], ...] = field(default=(), compare=False, repr=False, metadata=IN_PROCESS)

    def apply(self, setting: str | None = None) -> Marking:
        """Have the guards of this function checked as `advice` says, or as the setting of this name; gives a handle.

        Only what drops no guard can be applied to compiled code: "dict tags". Raises UsageError for other settings, and where
        no cheaper one is safe: then name the one whose `misses` you accept.
        """
        chosen = self.advice if setting is None else next((each for each in self.settings if each.name == setting), None)
        if chosen is None:
            raise UsageError(
                f"no setting {setting!r} was measured\n  there is {', '.join(each.name for each in self.settings)}"
            )
        if chosen.name == DICT_TAGS:
            return Marking([code for each in self.codes if (code := each()) is not None])
        if chosen == self.settings[0]:
            raise UsageError(_nothing_cheaper(self.settings[1:]))
        raise UsageError(f"{chosen.name} drops guards, which torch can only do when it compiles\n  write {chosen.how}")


def profile(compiled: Any, /, *args: Any, **kwargs: Any) -> GuardProfile:
    """Time the guards of a call, part by part, and the ways to have them checked that would cost less.

    **Makes the call several times**, to find the frames that it runs and to time the whole of it; then times copies of their
    guards alone, which takes about a second. Guards are timed as a loop has them, with the processor's cache warm; between long
    steps they cost more. The frames are those of the function and of its rests after graph breaks, not of functions that these
    call.

    `settings` are what could be chosen instead, with the nanoseconds that each would take and the changes that it would miss;
    `advice` is the cheapest that misses none; `apply()` has it from then on. Raises UsageError for what is not compiled and for
    a call that runs nothing compiled, and what the call raises.

    >>> import torch
    >>> from dynx import guards
    >>> model = torch.compile(torch.nn.Sequential(*(torch.nn.Linear(4, 4) for _ in range(8))), backend="eager")
    >>> costs = guards.profile(model, torch.ones(2, 4))
    >>> costs.frames[0].size > 50 and 0 < costs.share < 1
    True
    """
    codes = codes_of(compiled)

    def call() -> object:
        return compiled(*args, **kwargs)

    call()  # compiles, where it has to
    frames = _by_entry(frames_run(call, with_rests(codes)))
    if not frames:
        raise UsageError(
            f"this call of {location_of(codes[0]).function} runs nothing that is compiled\n"
            "  give what torch.compile made; where it is, dynx.would_recompile(compiled, ...) says why"
        )
    for each in frames:
        each.measure(_SECONDS / len(frames))
    return GuardProfile(
        location_of(codes[0]),
        _nanoseconds(call),
        tuple(each.cost() for each in frames),
        settings([(each.planned, each.count) for each in frames]),
        codes=tuple(map(ref, codes)),
    )


def _by_entry(runs: list[FrameRun]) -> list[_Frame]:
    found: dict[int, list[FrameRun]] = {}
    for each in runs:
        found.setdefault(id(each.entry.guards), []).append(each)
    return [_Frame(same[0], len(same)) for same in found.values()]


class _Frame:
    """A frame of the call, being measured."""

    def __init__(self, run: FrameRun, count: int) -> None:
        self.entry, self.count = run.entry, count
        tree = tree_of(run.entry.guards)
        facts = bus.facts_of(run.entry.compile_id)
        self._guards = node_of(tree, run.entry.code, facts.requests if facts is not None else None)
        self._times = GuardTimes(tree, run.locals)
        self.planned = plan(self._times, tree, self._guards, run.locals, run.globals)

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
        return "no cheaper setting is safe, and there is none that drops no guard"
    misses = "".join(f"\n    {each}" for each in drops_none[0].misses)
    return f"no cheaper setting is safe in every case\n  {drops_none[0].how} has dict tags, which miss{misses}"
