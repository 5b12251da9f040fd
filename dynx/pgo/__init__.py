"""PGO profiles, which store which sizes are dynamic: record a profile, explain it, and start the next process with it."""

from __future__ import annotations

from dynx.pgo._apply import AppliedProfile
from dynx.pgo._cache_keys import CacheKeys
from dynx.pgo._cachediff import cachediff
from dynx.pgo._closures import StableClosureHash, stable_closure_hash
from dynx.pgo._profile import Profile
from dynx.pgo._record import Recorder, record
from dynx.pgo._warm_start import WarmStart, warm_start

__all__ = [
    "AppliedProfile",
    "CacheKeys",
    "Profile",
    "Recorder",
    "StableClosureHash",
    "WarmStart",
    "cachediff",
    "record",
    "stable_closure_hash",
    "warm_start",
]
