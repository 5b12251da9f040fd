"""The version of dynx, which is written to the header of run files."""

from __future__ import annotations

__version__ = "0.1.0"
