"""`guards.recompiles()`: why functions are compiled again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Self, overload

from dynx._trace import bus
from dynx.advice import rule_of_reason
from dynx.records import Reason, Recompile, Record


def recompiles() -> Recompiles:
    """Record every recompile while the `with` block runs: a sequence of `Recompile`, also during the block.

    Each has `reasons`, one for each version that did not fit: kind, source, expected, got, the line that asked for the guard
    (for ambient state, the backend and the configuration: the line of the call), and the advice rule that applies.
    `dynx.watch()` records the same, and more.

    >>> import torch
    >>> from dynx import guards
    >>> f = torch.compile(lambda x, n: x * n, backend="eager", dynamic=False)
    >>> with guards.recompiles() as log:
    ...     for n in (2, 3): y = f(torch.ones(3), n)
    >>> [(each.source, each.expected, each.got) for each in log[0].reasons]
    [('n', '2', '3')]
    """
    return Recompiles()


class Recompiles(Sequence[Recompile]):
    """The recompiles of a block, in order."""

    def __init__(self) -> None:
        self._found: list[Recompile] = []
        self._listening: Any = None

    def __enter__(self) -> Self:
        self._listening = bus.listen(self._hear)
        return self

    def __exit__(self, *_: object) -> None:
        self._listening.remove()

    def _hear(self, record: Record) -> None:
        if isinstance(record, Recompile):
            self._found.append(replace(record, reasons=tuple(map(ruled, record.reasons))))

    @overload
    def __getitem__(self, index: int) -> Recompile: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Recompile, ...]: ...
    def __getitem__(self, index: int | slice) -> Recompile | tuple[Recompile, ...]:
        return tuple(self._found)[index]

    def __len__(self) -> int:
        return len(self._found)

    def __iter__(self) -> Iterator[Recompile]:
        return iter(tuple(self._found))

    def __repr__(self) -> str:
        return f"Recompiles({len(self._found)})"


def ruled(reason: Reason) -> Reason:
    """Add the advice rule that applies."""
    return replace(reason, rule=rule_of_reason(reason))
