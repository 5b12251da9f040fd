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
from dynx.effects._check.compare import Difference, differences, differences_of_leaks, error_text, is_same_state
from dynx.effects._check.leaks import watch_program
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


class SideState(NamedTuple):
    """What eager or compiled calls used besides copies: objects that cannot be copied, RNG states, leaks (changed objects)."""

    shared: Mapping[str, int]  # by class, the number of objects that both sides used, since they cannot be copied
    unread: tuple[str, ...]  # the classes among them whose state cannot be compared either
    draws: bool = False  # whether random numbers were drawn
    leaks: tuple[Leak, ...] = ()
    is_whole: bool = True  # whether all objects of the program were watched


class Trial(NamedTuple):
    """The result of comparing all eager calls with all compiled calls once."""

    diffs: tuple[Diff, ...]  # the first difference of each path
    records: Sequence[Record]  # of the compilations
    raised: str  # the first exception that both sides raised; an empty text for none
    eager: SideState


def compare(program: Program, backend: Any, *, watches: bool = False) -> Trial:
    """Make all calls eagerly and compiled, and compare them; with `watches`, also find changes of the program's own objects."""
    found, raised, records, eager = (_in_children if program.forks else _in_turn)(program, backend, watches=watches)
    first = {one.diff.path: one.diff for one in reversed(found)}
    diffs = with_lines(sorted(first.values(), key=lambda diff: diff.call), records, program.fn)
    is_same = not any(diff.path == "exception" for diff in diffs)
    return Trial(diffs, records, next(filter(None, raised), "") if is_same else "", eager)


class _Compared(NamedTuple):
    found: list[Difference]
    raised: Sequence[str]  # the exception of each eager call; an empty text for none
    records: Sequence[Record]
    eager: SideState


def _in_turn(program: Program, backend: Any, *, watches: bool) -> _Compared:
    """Make each call eagerly and then compiled, and compare; with `watches`, also find changes of the program's own objects."""
    records: list[Record] = []
    found: list[Difference] = []
    raised: list[str] = []
    with random_restored():
        states = random_states()
        with without_modes():
            eager = program.eager(states)
            watch = _watch(program, backend, eager, watches=watches)
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
            found = beyond_rounding(found, program, states)
    with without_modes():
        return _Compared(found, raised, records, _state_of(eager, states, watch))


def _in_children(program: Program, backend: Any, *, watches: bool) -> _Compared:
    """Make the eager calls in one forked process and the compiled calls in another, and compare; with `watches`, find leaks."""
    states = random_states()
    try:
        expected, eager = in_child(lambda: _eager_outcomes(program, backend, states, watches=watches))
    except ChildDied as died:
        raise UsageError(f"eager code ends the process: {died}\n  check a part of the program that returns or raises") from None
    try:
        got, compiled, records = in_child(lambda: _compiled_outcomes(program, backend, states, watches=watches))
    except ChildDied as died:
        end = Difference(Diff("exception", "none", f"the process ends: {died}", "exception"))
        return _Compared([end], (), (), SideState({}, eager.unread))
    found: list[Difference] = []
    raised: list[str] = []
    for index, (one, other) in enumerate(zip(expected, got, strict=True)):
        outcome = unpacked(one)
        found += differences(outcome, unpacked(other), index, program.tolerance)
        raised.append(error_text(outcome.error))
    if found:  # a forked process has the objects of its parent, at the same addresses
        kept = in_child(lambda: set(map(id, beyond_rounding(found, program, states))))
        found = [one for one in found if id(one) in kept]
    last = len(program.calls) - 1
    found += differences_of_leaks(eager.leaks, compiled.leaks, last)  # objects that were not copied
    is_whole = eager.is_whole and compiled.is_whole
    return _Compared(found, raised, records, eager._replace(shared={}, leaks=(), is_whole=is_whole))


def _eager_outcomes(program: Program, backend: Any, states: dict[str, Any], *, watches: bool) -> tuple[list[bytes], SideState]:
    side = program.eager(states)
    watch = _watch(program, backend, side, watches=watches)
    with torch.compiler.set_stance("force_eager"):
        outcomes = [_outcome(side, index) for index in range(len(program.calls))]
    return outcomes, _state_of(side, states, watch)


def _compiled_outcomes(
    program: Program, backend: Any, states: dict[str, Any], *, watches: bool
) -> tuple[list[bytes], SideState, list[Record]]:
    records: list[Record] = []
    with _as_before(program, records), ExitStack() as stack:
        side = program.compiled(backend, states, stack)
        watch = _watch(program, backend, side, watches=watches)
        outcomes = [_outcome(side, index) for index in range(len(program.calls))]
    return outcomes, _state_of(side, states, watch), records  # after Dynamo's global names are removed


def _watch(program: Program, backend: Any, side: Side, *, watches: bool) -> Watch:
    return watch_program(program.roots(), backend, side.world.libraries) if watches else Watch(())


def _state_of(side: Side, states: dict[str, Any], watch: Watch) -> SideState:
    """Return which objects a side could not copy, whether its RNG states differ from `states`, and the changes in `watch`."""
    shared = Counter(class_name(type(value)) for value in side.world.shared)
    unread = dict.fromkeys(class_name(type(value)) for value in side.world.shared if has_unknown_state(value))
    leaks = tuple(Leak(*changed) for changed in watch.changed())
    return SideState(shared, tuple(unread), not is_same_state(states, side.random), leaks, watch.is_complete)


def class_name(cls: type) -> str:
    """Return the name of a class with its module, such as `torch.nn.modules.linear.Linear`; without it for built-in classes."""
    return f"{cls.__module__}.{cls.__qualname__}".removeprefix("builtins.")


def _outcome(side: Side, index: int) -> bytes:
    outcome: Outcome = side.run(index)
    if any(_NO_GRADIENTS in text for text in outcome.errors()):
        raise UsageError(
            "a forked process cannot compute gradients here: autograd has already started its threads\n"
            '  pass isolate="copy", or check before the program\'s first backward'
        )
    return packed(outcome)  # serialize now: the next call may change the same tensors


@contextmanager
def _as_before(program: Program, records: list[Record]) -> Iterator[None]:
    """In a `with` block, compile without recompile limits and donated buffers, and add the compilations to `records`.

    At the end, restore torch's settings and counters, and remove the cache entries and global names of the compilations.
    """
    with (
        without_limits(),
        nothing_remains(),
        random_numbers_of_eager_code() if program.aligns_random_numbers else nullcontext(),
        backward_as_often_as_eager_code(),
        listen(records.append, explains_recompiles=False),
    ):
        yield
