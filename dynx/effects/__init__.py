"""Side effects of compiled functions: does a compiled function do what eager code does?"""

from __future__ import annotations

from dynx.effects._check.check import check
from dynx.records.check import CheckReport, Diff

__all__ = ["CheckReport", "Diff", "check"]
