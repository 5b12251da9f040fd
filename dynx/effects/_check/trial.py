"""One comparison of a function with a backend, in new copies of its world."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import torch

from dynx._torch.cache.temporary import nothing_remains
from dynx._torch.compilation.anew import (
    backward_as_often_as_eager_code,
    compile_anew,
    random_numbers_of_eager_code,
    without_limits,
)
from dynx._trace.bus import listen
from dynx.effects._check.child import ChildDied, in_child, packed, unpacked
from dynx.effects._check.compare import Difference, Tolerance, differences, error_text
from dynx.effects._check.lines import with_lines
from dynx.effects._check.reference import beyond_rounding
from dynx.effects._check.run import Outcome, Side, random_restored, random_states
from dynx.effects._world.code import own_code
from dynx.effects._world.world import Call, World
from dynx.errors import UsageError
from dynx.records.check import Diff
from dynx.records.record import Record

# torch's autograd engine, where it was built for CUDA and has run in the parent process
_NO_GRADIENTS = "autograd's threading in combination with fork-based multiprocessing"


class Program(NamedTuple):
    """A function that is not compiled, the arguments of its calls, further state, and how far numbers may differ."""

    fn: Any
    calls: Sequence[Call]
    state: Mapping[str, Any]
    tolerance: Tolerance
    forks: bool = False  # whether each side runs in a process of its own
    fullgraph: bool = False  # whether graph breaks raise

    def eager(self, random: dict[str, Any], *, in_double: bool = False) -> Side:
        """Return the function in a new world."""
        world = World(self.fn, self.calls, self.state, in_double=in_double)
        return Side(world, world.fn, random)

    def compiled(self, backend: Any, random: dict[str, Any], stack: ExitStack) -> Side:
        """Return the compiled function in a new world, where its functions have code objects of their own."""
        world = World(self.fn, self.calls, self.state)
        stack.enter_context(own_code(world.functions))
        return Side(world, compile_anew(world.fn, backend, fullgraph=self.fullgraph), random)


class Trial(NamedTuple):
    """What a comparison found."""

    diffs: tuple[Diff, ...]  # of each path the first one
    records: Sequence[Record]  # of the compilations
    shared: Mapping[str, int]
    raised: str = ""  # what both sides raised, in the first call that did


def compare(program: Program, backend: Any) -> Trial:
    """Make all calls eagerly and compiled with a backend, and return the differences."""
    found, records, shared, raised = (_in_children if program.forks else _in_turn)(program, backend)
    first = {one.diff.path: one.diff for one in reversed(found)}
    diffs = with_lines(sorted(first.values(), key=lambda diff: diff.call), records, program.fn)
    is_same = not any(diff.path == "exception" for diff in diffs)
    return Trial(diffs, records, shared, next(filter(None, raised), "") if is_same else "")


class _Compared(NamedTuple):
    found: list[Difference]
    records: Sequence[Record]
    shared: Mapping[str, int]
    raised: Sequence[str]  # what eager code raised in each call; empty texts for calls that returned


def _in_turn(program: Program, backend: Any) -> _Compared:
    """Make each call eagerly, then compiled, in this process."""
    records: list[Record] = []
    found: list[Difference] = []
    raised: list[str] = []
    with random_restored(), _as_before(records), ExitStack() as stack:
        states = random_states()
        compiled = program.compiled(backend, states, stack)
        eager = program.eager(states)
        for index in range(len(program.calls)):
            with torch.compiler.set_stance("force_eager"):
                expected = eager.run(index)
            found += differences(expected, compiled.run(index), index, program.tolerance)
            raised.append(error_text(expected.error))
        return _Compared(_without_rounding(program, found, states), records, eager.world.shared, raised)


def _in_children(program: Program, backend: Any) -> _Compared:
    """Make all calls eagerly in one process, all compiled in another; both begin as copies of this one."""
    states = random_states()
    try:
        expected = in_child(lambda: _eager_outcomes(program, states))
    except ChildDied as died:
        raise UsageError(f"eager code ends the process: {died}\n  check a part of the program that returns or raises") from None
    try:
        got, records = in_child(lambda: _compiled_outcomes(program, backend, states))
    except ChildDied as died:
        end = Difference(Diff("exception", "none", f"the process ends: {died}", "exception"))
        return _Compared([end], (), {}, ())
    found: list[Difference] = []
    raised: list[str] = []
    for index, (one, other) in enumerate(zip(expected, got, strict=True)):
        outcome = unpacked(one)
        found += differences(outcome, unpacked(other), index, program.tolerance)
        raised.append(error_text(outcome.error))
    if not found:
        return _Compared(found, records, {}, raised)
    kept = in_child(lambda: _positions(found, _without_rounding(program, found, states)))
    return _Compared([found[position] for position in kept], records, {}, raised)


def _eager_outcomes(program: Program, states: dict[str, Any]) -> list[bytes]:
    side = program.eager(states)
    with torch.compiler.set_stance("force_eager"):
        return [_outcome(side, index) for index in range(len(program.calls))]


def _compiled_outcomes(program: Program, backend: Any, states: dict[str, Any]) -> tuple[list[bytes], list[Record]]:
    records: list[Record] = []
    with _as_before(records), ExitStack() as stack:
        side = program.compiled(backend, states, stack)
        return [_outcome(side, index) for index in range(len(program.calls))], records


def _outcome(side: Side, index: int) -> bytes:
    outcome: Outcome = side.run(index)
    if any(_NO_GRADIENTS in text for text in outcome.errors()):
        raise UsageError(
            "a forked process cannot compute gradients here: torch has started its threads for them\n"
            '  pass isolate="copy", or check before the program\'s first backward'
        )
    return packed(outcome)  # now: the next call may change the same tensors


def _without_rounding(program: Program, found: list[Difference], states: dict[str, Any]) -> list[Difference]:
    """Return the differences that are more than rounding, if the user gave no tolerance."""
    if program.tolerance != Tolerance():
        return found

    def make_side(*, in_double: bool) -> Side:
        return program.eager(states, in_double=in_double)

    with torch.compiler.set_stance("force_eager"):
        return beyond_rounding(found, make_side)


def _positions(found: list[Difference], kept: list[Difference]) -> list[int]:
    return [index for index, one in enumerate(found) if any(one is other for other in kept)]


@contextmanager
def _as_before(records: list[Record]) -> Iterator[None]:
    """Record compilations, which allow what eager code does; let nothing of them remain in torch."""
    with (
        without_limits(),
        nothing_remains(),
        random_numbers_of_eager_code(),
        backward_as_often_as_eager_code(),
        listen(records.append),
    ):
        yield
