"""Measure how long the guards of a cache entry take to evaluate, for each subtree of the guard tree.

Torch: `RootGuardManager.clone_manager` copies the nodes of a tree that a filter selects, with their leaf guards; a copy is
timed through `.check`. The tree in use is evaluated, not changed. Copies have no dict tags, so none of their guards is skipped.
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
    """The evaluation times of one node of the guard tree, in nanoseconds."""

    node: RawNode
    total: float  # of the whole subtree
    own: float  # of the access to the value and its leaf guards
    children: list[TimedNode]


class GuardTimes:
    """A timer of a guard tree and each of its subtrees, evaluated on locals for which all guards pass.

    It times the whole tree, copies of its subtrees, and the trees that `add_copy` and `add_root` add. `measure` times each of
    them once per round, so that a moment in which the machine is slow affects one round of every tree, not all rounds of one.
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
        """Also time a copy of the tree with only these connected nodes. Returns a function to get the measured nanoseconds."""
        run = self._copy({node.manager for node in nodes})
        return lambda: self._ns(run)

    def add_root(self, root: Any, locals: Mapping[str, Any]) -> Callable[[], float]:
        """Also time another tree (a `RootGuardManager`) on these locals. Returns a function to get the measured nanoseconds."""
        run = self._run(root, locals)
        return lambda: self._ns(run)

    def measure(self, seconds: float) -> None:
        """Time the guard tree, its subtrees and added trees in turn, for about `seconds` and at least three rounds."""
        end = time.perf_counter() + seconds
        for rounds in itertools.count(1):
            for run in self._runs:
                run.burst()
            if rounds >= 3 and time.perf_counter() > end:
                return

    @property
    def whole(self) -> float:
        """The nanoseconds that one evaluation of the whole guard tree takes, with dict tags where torch uses them."""
        return self._ns(self._whole)

    @property
    def ambient(self) -> float:
        """The nanoseconds that the guards at the root of the tree take; they check global state, such as grad mode."""
        return self._ns(self._own[id(self._tree)])

    def parts(self) -> TimedNode:
        """Return the times of all nodes as a tree; a node's total is its own time plus the totals of its children."""
        return self._part(self._tree, self._ns(self._total[id(self._tree)]), 0.0)

    def _add_part(self, node: RawNode, path: list[Any]) -> None:
        path = [*path, node.manager]
        self._own[id(node)] = self._total[id(node)] = self._copy(set(path))
        for child in node.children:
            self._add_part(child, path)
        if node.children:
            self._total[id(node)] = self._copy({*path, *(inner.manager for inner in node.walk())})

    def _part(self, node: RawNode, total: float, before: float) -> TimedNode:
        """Distribute `total`, the time of a node's subtree, over the node and its children, in proportion to their timings.

        The timing of each child includes costs that all children share, such as the iteration over a dict, so the timings may
        add up to more than `total`. `before` is the time of the nodes from the root to the parent node, in nanoseconds.
        """
        until = self._ns(self._own[id(node)])
        own, inner = max(0.0, until - before), [max(0.0, self._ns(self._total[id(child)]) - until) for child in node.children]
        scale = min(1.0, total / max(own + sum(inner), 1e-9))
        inner = [ns * scale for ns in inner]
        children = [self._part(child, ns, until) for child, ns in zip(node.children, inner, strict=True)]
        return TimedNode(node, total, total - sum(inner), children)

    def _copy(self, chosen: set[Any]) -> _Run:
        return self._run(self._tree.manager.clone_manager(chosen.__contains__), self._locals)

    def _run(self, root: Any, locals: Mapping[str, Any]) -> _Run:
        self._runs.append(run := _Run(root, locals))
        return run

    def _ns(self, run: _Run) -> float:
        return max(0.0, run.best - self._empty.best)


class _Run:
    """A `RootGuardManager` that is being timed, and its fastest time so far, in nanoseconds per check."""

    __slots__ = ("_check", "_locals", "_times", "best")

    def __init__(self, root: Any, locals: Mapping[str, Any]) -> None:
        self._check, self._locals, self._times, self.best = root.check, locals, 1, float("inf")

    def burst(self) -> None:
        """Time about ten microseconds of repeated guard checks, and keep the time per check if it is the fastest so far."""
        check, locals, clock = self._check, self._locals, time.perf_counter_ns
        check(locals)  # loads it into the CPU's cache, from which other runs have evicted it
        start = clock()
        for _ in itertools.repeat(None, self._times):
            check(locals)
        self.best = min(self.best, (clock() - start) / self._times)
        self._times = max(4, int(_BURST_NS / max(1.0, self.best)))
