"""Names of symbolic sizes and numbers (such as `s77`) that do not depend on the order in which torch creates the symbols."""

from __future__ import annotations

from dynx.symbols._install import InstalledScheme, install
from dynx.symbols._report import report

__all__ = ["InstalledScheme", "install", "report"]
