"""How long the guards of a cache entry take, part by part.

Torch: `RootGuardManager.clone_manager` copies the parts of a tree that a filter chooses, with their leaf guards; a copy is
timed through `.check`. The tree that is in use is not touched but by being asked. Copies lack torch's shortcuts for
dictionaries that did not change, so their times are those of guards that are really evaluated. Alike in 2.11, 2.13 and 2.15.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from dynx._torch.cache.guard_tree import RawNode
from dynx._torch.capabilities import require

_BURST_NS = 10_000


class TimedNode(NamedTuple):
    """A guarded value; times in nanoseconds."""

    node: RawNode
    total: float  # with everything reached through it
    own: float  # reaching it, and its guards
    children: list[TimedNode]


class GuardTimes:
    """Times a tree and parts of it on the locals of a frame that it fits.

    What is to be timed is named first, then timed together in rounds, so that a moment in which the machine is slow spoils
    one round of all and not all of one.
    """

    def __init__(self, tree: RawNode, locals: Mapping[str, Any]) -> None:
        require("root_guards", "clone_guards")
        from torch._C._dynamo.guards import RootGuardManager

        self._tree, self._locals = tree, dict(locals)
        self._runs: list[_Run] = []
        self._empty = self._run(RootGuardManager(), self._locals)
        self._whole = self._run(tree.manager, self._locals)
        self._own: dict[int, _Run] = {}
        self._total: dict[int, _Run] = {}
        self._add_part(tree, [])

    def add_copy(self, nodes: Iterable[RawNode]) -> Callable[[], float]:
        """Time a copy with these parts alone, which must be connected; gives what gives the nanoseconds."""
        run = self._copy({each.manager for each in nodes})
        return lambda: self._ns(run)

    def add_root(self, root: Any, locals: Mapping[str, Any]) -> Callable[[], float]:
        """Time another root on locals of its own."""
        run = self._run(root, locals)
        return lambda: self._ns(run)

    def measure(self, seconds: float) -> None:
        """Time everything for about so long, and each three times at least."""
        end = time.perf_counter() + seconds
        for done in itertools.count(1):
            for run in self._runs:
                run.burst()
            if done >= 3 and time.perf_counter() > end:
                return

    @property
    def whole(self) -> float:
        """The nanoseconds of the tree as torch asks it."""
        return self._ns(self._whole)

    @property
    def ambient(self) -> float:
        """The nanoseconds of what is checked of no value: global state."""
        return self._ns(self._own[id(self._tree)])

    def parts(self) -> TimedNode:
        """Give every part; those below a value add up to what it takes."""
        return self._part(self._tree, self._ns(self._total[id(self._tree)]), 0.0)

    def _add_part(self, node: RawNode, path: list[Any]) -> None:
        path = [*path, node.manager]
        self._own[id(node)] = self._total[id(node)] = self._copy(set(path))
        for each in node.children:
            self._add_part(each, path)
        if node.children:
            self._total[id(node)] = self._copy({*path, *(each.manager for each in node.walk())})

    def _part(self, node: RawNode, total: float, before: float) -> TimedNode:
        """Divide a time among a node and those below it, as they were timed alone.

        Alone, each also bears what they share: one walk over a dictionary leads to all its values.
        """
        until = self._ns(self._own[id(node)])
        own, below = max(0.0, until - before), [max(0.0, self._ns(self._total[id(each)]) - until) for each in node.children]
        scale = min(1.0, total / max(own + sum(below), 1e-9))
        below = [each * scale for each in below]
        children = [self._part(each, ns, until) for each, ns in zip(node.children, below, strict=True)]
        return TimedNode(node, total, total - sum(below), children)

    def _copy(self, chosen: set[Any]) -> _Run:
        return self._run(self._tree.manager.clone_manager(chosen.__contains__), self._locals)

    def _run(self, root: Any, locals: Mapping[str, Any]) -> _Run:
        self._runs.append(run := _Run(root, locals))
        return run

    def _ns(self, run: _Run) -> float:
        return max(0.0, run.best - self._empty.best)


class _Run:
    """The fastest burst of a root so far, in nanoseconds a check."""

    __slots__ = ("_check", "_locals", "_times", "best")

    def __init__(self, root: Any, locals: Mapping[str, Any]) -> None:
        self._check, self._locals, self._times, self.best = root.check, locals, 1, float("inf")

    def burst(self) -> None:
        check, locals, clock = self._check, self._locals, time.perf_counter_ns
        check(locals)  # brings it into the processor's cache, which the others have used since
        start = clock()
        for _ in itertools.repeat(None, self._times):
            check(locals)
        self.best = min(self.best, (clock() - start) / self._times)
        self._times = max(4, int(_BURST_NS / max(1.0, self.best)))
