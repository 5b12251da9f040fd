"""What the backend did in this process."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, replace

from dynx._trace.dispatch import emit
from dynx._trace.user_location import location_of_call
from dynx.errors import CaptureFailed
from dynx.records.cudagraphs import AddressChange, CudagraphStats, GraphRecorded, Skip


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
_address_changes: deque[AddressChange] = deque(maxlen=100)


def count_recording(recorded: GraphRecorded) -> Tally:
    """Count a recording; the tally is to count its replays."""
    _recorded.times += 1
    _replays.append(tally := Tally(recorded.copies, recorded.bytes_copied))
    emit(recorded)
    return tally


def count_uncaptured() -> None:
    _uncaptured.times += 1


def count_skip(skip: Skip) -> Skip:
    """Count what runs uncaptured; what has no line gets that which is calling."""
    skip = replace(skip, location=skip.location or location_of_call(), at=time.time())
    _skips.append(skip)
    emit(skip)
    return skip


def count_address_change(change: AddressChange) -> None:
    change = replace(change, at=time.time())
    _address_changes.append(change)
    emit(change)


def failure(error: CaptureFailed) -> Skip:
    reason, _, advice = str(error).partition("\n  ")
    return Skip(
        reason, None, advice or "leave out what waits for the device or reads a value of it; or call it outside", "capture"
    )


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
        moves=tuple(_address_changes),
    )


def forget() -> None:
    """Begin to count anew."""
    for each in (_recorded, _uncaptured, *_replays):
        each.times = 0
    _skips.clear()
    _address_changes.clear()
