"""Names of symbols that do not depend on the order in which torch creates them."""

from __future__ import annotations

from dynx.symbols._install import InstalledScheme, install
from dynx.symbols._report import report

__all__ = ["InstalledScheme", "install", "report"]
