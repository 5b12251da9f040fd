"""What the backend did in this process."""

from __future__ import annotations

from dataclasses import dataclass

from dynx.cudagraphs._moves import forget_moves, moves
from dynx.records.cudagraphs import CudagraphStats, Skip


@dataclass(slots=True)
class Tally:
    """How often something was done that copies so many inputs each time."""

    copies: int = 0
    nbytes: int = 0
    times: int = 0


_recorded = Tally()
_uncaptured = Tally()
_replays: list[Tally] = []  # one for each recording, also for those that are gone
_skips: list[Skip] = []


def count_recording(copies: int, nbytes: int) -> Tally:
    """Count a recording; the tally is to count its replays."""
    _recorded.times += 1
    _replays.append(tally := Tally(copies, nbytes))
    return tally


def count_uncaptured() -> None:
    _uncaptured.times += 1


def count_skip(skip: Skip) -> None:
    _skips.append(skip)


def stats() -> CudagraphStats:
    """Give what was recorded, replayed, copied and run uncaptured since the process began, or since `reset`.

    >>> from dynx import cudagraphs
    >>> cudagraphs.reset()
    >>> cudagraphs.stats().replays
    0
    """
    return CudagraphStats(
        recordings=_recorded.times,
        replays=sum(each.times for each in _replays),
        uncaptured=_uncaptured.times,
        copies=sum(each.times * each.copies for each in _replays),
        bytes_copied=sum(each.times * each.nbytes for each in _replays),
        skips=tuple(_skips),
        moves=moves(),
    )


def forget() -> None:
    """Begin to count anew."""
    for each in (_recorded, _uncaptured, *_replays):
        each.times = 0
    _skips.clear()
    forget_moves()
