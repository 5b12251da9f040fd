"""Profiles of dynamic sizes (PGO): record them, explain them, and begin the next process with them."""

from __future__ import annotations

from dynx.pgo._apply import AppliedProfile
from dynx.pgo._closures import StableClosureHash, stable_closure_hash
from dynx.pgo._profile import Profile
from dynx.pgo._record import Recorder, record

__all__ = ["AppliedProfile", "Profile", "Recorder", "StableClosureHash", "record", "stable_closure_hash"]
