"""One comparison of a function with a backend, in new copies of its world."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import torch

from dynx._torch.cache.temporary import nothing_remains
from dynx._torch.compilation.anew import compile_anew, random_numbers_of_eager_code, without_limits
from dynx._trace.bus import listen
from dynx.effects._check.compare import Difference, Tolerance, differences
from dynx.effects._check.reference import beyond_rounding
from dynx.effects._check.run import Side, random_restored, random_states
from dynx.effects._world.code import own_code
from dynx.effects._world.world import Call, World
from dynx.records.check import Diff
from dynx.records.record import Record


class Program(NamedTuple):
    """A function that is not compiled, the arguments of its calls, further state, and how far numbers may differ."""

    fn: Any
    calls: Sequence[Call]
    state: Mapping[str, Any]
    tolerance: Tolerance


class Trial(NamedTuple):
    """What a comparison found."""

    diffs: tuple[Diff, ...]  # of each path the first one
    records: Sequence[Record]  # of the compilations
    shared: Mapping[str, int]


def compare(program: Program, backend: Any) -> Trial:
    """Make all calls eagerly and compiled with a backend, and return the differences."""
    records: list[Record] = []
    found: list[Difference] = []
    with random_restored(), _as_before(records), ExitStack() as stack:
        states = random_states()
        eager_world, compiled_world = (World(program.fn, program.calls, program.state) for _ in range(2))
        stack.enter_context(own_code(compiled_world.functions))
        compiled = Side(compiled_world, compile_anew(compiled_world.fn, backend), states)
        eager = Side(eager_world, eager_world.fn, states)
        for index in range(len(program.calls)):
            with torch.compiler.set_stance("force_eager"):
                expected = eager.run(index)
            found += differences(expected, compiled.run(index), index, program.tolerance)

        def make_side(*, in_double: bool) -> Side:
            world = World(program.fn, program.calls, program.state, in_double=in_double)
            return Side(world, world.fn, states)

        if program.tolerance == Tolerance():
            with torch.compiler.set_stance("force_eager"):
                found = beyond_rounding(found, make_side)
    first = {one.diff.path: one.diff for one in reversed(found)}
    return Trial(tuple(sorted(first.values(), key=lambda diff: diff.call)), records, eager_world.shared)


@contextmanager
def _as_before(records: list[Record]) -> Iterator[None]:
    """Record compilations; let nothing of them remain in torch."""
    with without_limits(), nothing_remains(), random_numbers_of_eager_code(), listen(records.append):
        yield
