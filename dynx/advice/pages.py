"""Find the documentation page of an advice rule, in `docs/rules/` of a checkout or inside the installed package."""

from __future__ import annotations

import re
from pathlib import Path

from dynx.errors import UnknownRule

_PACKAGE = Path(__file__).resolve().parent.parent
_FOLDERS = (_PACKAGE / "_pages", _PACKAGE.parent / "docs" / "rules")


def page(rule: str) -> str:
    """Return the documentation page of an advice rule.

    Args:
        rule: The id of the rule, such as "DX101".

    Returns:
        The page as Markdown text.

    Raises:
        UnknownRule: No rule has this id.
    """
    if re.fullmatch(r"DX\d{3}", rule):
        for folder in _FOLDERS:
            path = folder / f"{rule}.md"
            if path.is_file():
                return path.read_text(encoding="utf-8")
    raise UnknownRule(f"no rule has the id {rule}\n  list all rules: dynx rule")
