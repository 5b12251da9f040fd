"""What the backend did in this process."""

from __future__ import annotations

from dataclasses import dataclass

from dynx.records.cudagraphs import CudagraphStats, Skip


@dataclass(slots=True)
class Counts:
    """What one graph did."""

    recordings: int = 0
    replays: int = 0
    uncaptured: int = 0
    copies: int = 0
    bytes_copied: int = 0


_counts: list[Counts] = []  # also of graphs that are gone
_skips: list[Skip] = []


def new_counts() -> Counts:
    _counts.append(counts := Counts())
    return counts


def count_skip(skip: Skip) -> None:
    _skips.append(skip)


def stats() -> CudagraphStats:
    """Give what was recorded, replayed, copied and run uncaptured since the process began, or since `reset`.

    >>> from dynx import cudagraphs
    >>> cudagraphs.reset()
    >>> cudagraphs.stats().replays
    0
    """
    totals = {name: sum(getattr(each, name) for each in _counts) for name in Counts.__slots__}
    return CudagraphStats(**totals, skips=tuple(_skips))


def forget() -> None:
    """Begin to count anew."""
    for each in _counts:
        for name in Counts.__slots__:
            setattr(each, name, 0)
    _skips.clear()
