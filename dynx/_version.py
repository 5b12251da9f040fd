"""The version of dynx, which run files have in their header."""

from __future__ import annotations

__version__ = "0.1.0"
