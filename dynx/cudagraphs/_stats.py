"""Count what was recorded, replayed, copied and run uncaptured in this process."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from dynx._reading.user_location import location_of_call
from dynx._torch.ops.memory_pools import pool_uses
from dynx._trace.dispatch import emit
from dynx.errors import CaptureFailed
from dynx.records.cudagraphs import AddressChange, CudagraphStats, GraphRecorded, PoolMemory, Skip, Staging


@dataclass(slots=True)
class Tally:
    """The number of replays of a recording, the inputs and bytes that each replay copies, and the bytes the recording holds."""

    copies: int = 0
    nbytes: int = 0
    times: int = 0
    held: int = 0

    def release(self) -> None:
        self.held = 0


_counts: Counter[Literal["recordings", "uncaptured", "verified"]] = Counter()
_replays: list[Tally] = []  # one per recording, closed ones included
_skips: list[Skip] = []
_staging: Counter[Staging] = Counter()
_address_changes: deque[AddressChange] = deque(maxlen=100)


def count_recording(recorded: GraphRecorded) -> Tally:
    """Count a new recording, and return the Tally in which its replays are counted."""
    _counts["recordings"] += 1
    if recorded.staging is not None:
        _staging[recorded.staging] += 1
    _replays.append(tally := Tally(recorded.copies, recorded.bytes_copied, held=recorded.bytes_held))
    emit(recorded)
    return tally


def count_uncaptured() -> None:
    _counts["uncaptured"] += 1


def count_verified() -> None:
    _counts["verified"] += 1


def count_skip(skip: Skip) -> Skip:
    """Store and return a Skip, the reason why something runs uncaptured; add the user's current line if it has no location."""
    skip = replace(skip, location=skip.location or location_of_call(), at=time.time())
    _skips.append(skip)
    emit(skip)
    return skip


def count_address_change(change: AddressChange) -> None:
    change = replace(change, at=time.time())
    _address_changes.append(change)
    emit(change)


def skip_of_failure(error: CaptureFailed) -> Skip:
    """Return the Skip for a failed capture: the first line of the error's message is the reason, the rest the advice."""
    reason, _, advice = str(error).partition("\n  ")
    default = "remove what synchronizes with the device or reads a tensor's value, or call it outside of the captured function"
    return Skip(reason, error.location, advice or default, "capture")


def pools(besides: Sequence[object] = ()) -> tuple[PoolMemory, ...]:
    """Return the memory of all existing memory pools, except those in `besides`."""
    uses = (use for use in pool_uses() if not any(use.pool is other for other in besides))
    return tuple(PoolMemory(use.pool.what, use.pool.device, use.reserved, use.used) for use in uses)


def stats() -> CudagraphStats:
    """Return what was recorded, replayed, copied and run uncaptured since the process began, or since `reset`.

    Returns:
        A `CudagraphStats` record: `.recordings`, `.replays`, `.uncaptured` calls, `.verified` replays; `.copies` of inputs and
        `.bytes_copied`; `.skips` (what was not captured, and why), `.staging` (how inputs and results are copied),
        `.address_changes` of parameters; `.bytes_held` by recordings, and `.pools` with the memory of each pool.

    Example:
        >>> from dynx import cudagraphs
        >>> cudagraphs.reset()
        >>> cudagraphs.stats().replays
        0
    """
    return CudagraphStats(
        recordings=_counts["recordings"],
        replays=sum(tally.times for tally in _replays),
        uncaptured=_counts["uncaptured"],
        verified=_counts["verified"],
        copies=sum(tally.times * tally.copies for tally in _replays),
        bytes_copied=sum(tally.times * tally.nbytes for tally in _replays),
        skips=tuple(_skips),
        address_changes=tuple(_address_changes),
        staging=tuple(replace(staging, count=count) for staging, count in _staging.items()),
        bytes_held=sum(tally.held for tally in _replays),
        pools=pools(),
    )


def reset_stats() -> None:
    """Set all counts to zero, and empty the lists of skips, stagings and address changes."""
    for tally in _replays:
        tally.times = 0
    for counted in (_counts, _skips, _staging, _address_changes):
        counted.clear()
