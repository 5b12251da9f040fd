"""The pages of the rules: `docs/rules/` in a checkout, inside the package when installed."""

from __future__ import annotations

import re
from pathlib import Path

from dynx.errors import UnknownRule

_PACKAGE = Path(__file__).resolve().parent.parent
_PLACES = (_PACKAGE / "_pages", _PACKAGE.parent / "docs" / "rules")


def page(rule: str) -> str:
    """Give the Markdown page of a rule. Raises UnknownRule."""
    if re.fullmatch(r"DX\d{3}", rule):
        for place in _PLACES:
            path = place / f"{rule}.md"
            if path.is_file():
                return path.read_text(encoding="utf-8")
    raise UnknownRule(f"there is no rule {rule}\n  list them: dynx rule")
