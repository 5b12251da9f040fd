"""`compare`: make all calls of a check eagerly and compiled, each side in new copies of arguments and variables (`World`).

A leak is an object of the program itself, not a copy, that the calls changed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any, NamedTuple

import torch

from dynx._torch.cache.temporary import nothing_remains
from dynx._torch.compilation.anew import backward_as_often_as_eager_code, random_numbers_of_eager_code, without_limits
from dynx._torch.compilation.in_use import without_modes
from dynx._trace.bus import listen
from dynx.effects._check.child import ChildDied, in_child, packed, unpacked
from dynx.effects._check.compare import Difference, Tolerance, differences, differences_of_leaks, error_text, is_same_state
from dynx.effects._check.leaks import leaks_in, watch_program
from dynx.effects._check.lines import with_lines
from dynx.effects._check.program import Program
from dynx.effects._check.reference import beyond_rounding
from dynx.effects._check.run import Outcome, Side, random_restored, random_states
from dynx.effects._world.parts import has_unknown_state
from dynx.effects._world.watch import Watch
from dynx.errors import UsageError
from dynx.records.check import Diff, Leak
from dynx.records.record import Record

# in the error of autograd, if a CUDA build of torch has run its engine in the parent process
_NO_GRADIENTS = "autograd's threading in combination with fork-based multiprocessing"


class Trial(NamedTuple):
    """The result of comparing all eager calls with all compiled calls once."""

    diffs: tuple[Diff, ...]  # the first difference of each path
    records: Sequence[Record]  # of the compilations
    shared: Shared
    raised: str  # the first exception that both sides raised; an empty text for none
    draws: bool  # whether eager code drew random numbers
    leaks: tuple[Leak, ...]
    is_whole: bool  # whether all objects of the program were watched


class Shared(NamedTuple):
    """The objects that both sides used, since they cannot be copied.

    `counts` has their number by class, and `unread` the classes whose state cannot be compared either.
    """

    counts: Mapping[str, int]
    unread: tuple[str, ...]


def compare(program: Program, backend: Any, *, watches: bool = False) -> Trial:
    """Make all calls eagerly and compiled, and compare them; with `watches`, also find originals that the calls changed."""
    compared = (_in_children if program.forks else _in_turn)(program, backend, watches=watches)
    first = {one.diff.path: one.diff for one in reversed(compared.found)}
    diffs = with_lines(sorted(first.values(), key=lambda diff: diff.call), compared.records, program.fn)
    is_same = not any(diff.path == "exception" for diff in diffs)
    raised = next(filter(None, compared.raised), "") if is_same else ""
    return Trial(diffs, compared.records, compared.shared, raised, compared.draws, compared.leaks, compared.is_whole)


class _Compared(NamedTuple):
    found: list[Difference]
    records: Sequence[Record]
    shared: Shared
    raised: Sequence[str] = ()  # the exception of each eager call; an empty text for none
    draws: bool = False
    leaks: tuple[Leak, ...] = ()
    is_whole: bool = True


def _in_turn(program: Program, backend: Any, *, watches: bool) -> _Compared:
    """In this process, make each call eagerly and then compiled, and return what differs."""
    records: list[Record] = []
    found: list[Difference] = []
    raised: list[str] = []
    with random_restored():
        states = random_states()
        with without_modes():
            eager = program.eager(states)
            watch = _watch(program, backend, eager) if watches else None
        with _as_before(program, records), ExitStack() as stack:
            with without_modes():
                compiled = program.compiled(backend, states, stack)
            for index in range(len(program.calls)):
                with torch.compiler.set_stance("force_eager"):
                    expected = eager.run(index)
                got = compiled.run(index)
                with without_modes():
                    found += differences(expected, got, index, program.tolerance)
                raised.append(error_text(expected.error))
            found = _without_rounding(program, found, states)
    with without_modes():
        draws = not is_same_state(states, eager.random)
        leaks = leaks_in(watch) if watch is not None else ()
    is_whole = watch is None or watch.is_complete
    return _Compared(found, records, _shared_by(eager), raised, draws, leaks, is_whole)


def _in_children(program: Program, backend: Any, *, watches: bool) -> _Compared:
    """Make all eager calls in one forked process and all compiled calls in another, and return what differs."""
    states = random_states()
    try:
        expected = in_child(lambda: _eager_outcomes(program, backend, states, watches=watches))
    except ChildDied as died:
        raise UsageError(f"eager code ends the process: {died}\n  check a part of the program that returns or raises") from None
    try:
        got, records = in_child(lambda: _compiled_outcomes(program, backend, states, watches=watches))
    except ChildDied as died:
        end = Difference(Diff("exception", "none", f"the process ends: {died}", "exception"))
        return _Compared([end], (), expected.shared._replace(counts={}))
    found: list[Difference] = []
    raised: list[str] = []
    for index, (one, other) in enumerate(zip(expected.outcomes, got.outcomes, strict=True)):
        outcome = unpacked(one)
        found += differences(outcome, unpacked(other), index, program.tolerance)
        raised.append(error_text(outcome.error))
    if found:
        kept = in_child(lambda: _positions(found, _without_rounding(program, found, states)))
        found = [found[position] for position in kept]
    last = len(program.calls) - 1
    found += differences_of_leaks(expected.leaks, got.leaks, last)  # objects that were not copied
    return _Compared(
        found, records, expected.shared._replace(counts={}), raised, expected.draws, (), expected.is_whole and got.is_whole
    )


class _InChild(NamedTuple):
    outcomes: list[bytes]
    shared: Shared
    draws: bool
    leaks: tuple[Leak, ...]
    is_whole: bool


def _eager_outcomes(program: Program, backend: Any, states: dict[str, Any], *, watches: bool) -> _InChild:
    side = program.eager(states)
    watch = _watch(program, backend, side) if watches else None
    with torch.compiler.set_stance("force_eager"):
        outcomes = [_outcome(side, index) for index in range(len(program.calls))]
    return _in_child_result(outcomes, side, states, watch)


def _compiled_outcomes(
    program: Program, backend: Any, states: dict[str, Any], *, watches: bool
) -> tuple[_InChild, list[Record]]:
    records: list[Record] = []
    with _as_before(program, records), ExitStack() as stack:
        side = program.compiled(backend, states, stack)
        watch = _watch(program, backend, side) if watches else None
        outcomes = [_outcome(side, index) for index in range(len(program.calls))]
    return _in_child_result(outcomes, side, states, watch), records  # after Dynamo's global names are removed


def _watch(program: Program, backend: Any, side: Side) -> Watch:
    return watch_program(program.roots(), backend, side.world.libraries)


def _in_child_result(outcomes: list[bytes], side: Side, states: dict[str, Any], watch: Watch | None) -> _InChild:
    leaks = leaks_in(watch) if watch is not None else ()
    is_whole = watch is None or watch.is_complete
    return _InChild(outcomes, _shared_by(side), not is_same_state(states, side.random), leaks, is_whole)


def _shared_by(side: Side) -> Shared:
    """Return which objects the side did not copy, so that it shares them with the program and the other side."""
    names = [class_name(type(value)) for value in side.world.shared]
    unread = [class_name(type(value)) for value in side.world.shared if has_unknown_state(value)]
    return Shared(Counter(names), tuple(dict.fromkeys(unread)))


def class_name(cls: type) -> str:
    """Return the name of a class with its module, such as `torch.nn.modules.linear.Linear`; built-in classes without."""
    return f"{cls.__module__}.{cls.__qualname__}".removeprefix("builtins.")


def _outcome(side: Side, index: int) -> bytes:
    outcome: Outcome = side.run(index)
    if any(_NO_GRADIENTS in text for text in outcome.errors()):
        raise UsageError(
            "a forked process cannot compute gradients here: autograd has already started its threads\n"
            '  pass isolate="copy", or check before the program\'s first backward'
        )
    return packed(outcome)  # serialize now: the next call may change the same tensors


def _without_rounding(program: Program, found: list[Difference], states: dict[str, Any]) -> list[Difference]:
    """Return the differences that rounding does not explain; if the user passed `rtol` or `atol`, return all."""
    if program.tolerance != Tolerance():
        return found

    def make_side(*, in_double: bool) -> Side:
        return program.eager(states, in_double=in_double)

    with torch.compiler.set_stance("force_eager"):
        return beyond_rounding(found, make_side)


def _positions(found: list[Difference], kept: list[Difference]) -> list[int]:
    return [index for index, one in enumerate(found) if any(one is other for other in kept)]


@contextmanager
def _as_before(program: Program, records: list[Record]) -> Iterator[None]:
    """In a `with` block, compile without recompile limits and donated buffers, and add the compilations to `records`.

    At the end, restore torch's settings, and remove the cache entries, global names and counts that the compilations left.
    """
    with (
        without_limits(),
        nothing_remains(),
        random_numbers_of_eager_code() if program.aligns_random_numbers else nullcontext(),
        backward_as_often_as_eager_code(),
        listen(records.append, explains_recompiles=False),
    ):
        yield
