"""`guards.recompiles()`: record which guards made torch compile functions again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Self, overload

from dynx._handle import Handle
from dynx._trace import bus
from dynx.advice import rule_of_reason
from dynx.records import Reason, Recompile, Record


def recompiles() -> Recompiles:
    """Record every recompile, with the guards that failed, while the `with` block runs.

    `dynx.watch()` records the same, and more.

    Returns:
        A context manager and sequence of `Recompile`; it can be read during the block too. Each has `reasons`, one for each
        cache entry that did not fit: `kind`, `source`, `expected`, `got`, `location`, and the advice `rule` that applies. The
        location is the line that asked for the guard; for ambient state, the backend and the configuration that of the call.

    Example:
        >>> import torch
        >>> from dynx import guards
        >>> f = torch.compile(lambda x, n: x * n, backend="eager", dynamic=False)
        >>> with guards.recompiles() as log:
        ...     for n in (2, 3): y = f(torch.ones(3), n)
        >>> [(reason.source, reason.expected, reason.got) for reason in log[0].reasons]
        [('n', '2', '3')]
    """
    return Recompiles()


class Recompiles(Handle, Sequence[Recompile]):
    """The recompiles recorded by `guards.recompiles()` while its `with` block was open, in order."""

    def __init__(self) -> None:
        self._recompiles: list[Recompile] = []
        self._listening: bus.Listening | None = None

    def __enter__(self) -> Self:
        self._listening = bus.listen(self._on_record)
        return self

    def remove(self) -> None:
        """Stop recording recompiles; the sequence keeps those recorded so far."""
        if self._listening is not None:
            self._listening.remove()
            self._listening = None

    def _on_record(self, record: Record) -> None:
        if isinstance(record, Recompile):
            self._recompiles.append(replace(record, reasons=tuple(map(with_rule, record.reasons))))

    @overload
    def __getitem__(self, index: int) -> Recompile: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Recompile, ...]: ...
    def __getitem__(self, index: int | slice) -> Recompile | tuple[Recompile, ...]:
        return tuple(self._recompiles)[index]

    def __len__(self) -> int:
        return len(self._recompiles)

    def __iter__(self) -> Iterator[Recompile]:
        return iter(tuple(self._recompiles))

    def __repr__(self) -> str:
        return f"Recompiles({len(self._recompiles)})"


def with_rule(reason: Reason) -> Reason:
    """Return a copy of a recompile reason with the id of the advice rule that applies to it."""
    return replace(reason, rule=rule_of_reason(reason))
