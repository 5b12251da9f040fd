"""Write the list of all rules into rules/README.md, and their number where documents state it: `make rules`."""

from __future__ import annotations

import re
from pathlib import Path

from dynx.advice import RULES
from dynx.cli.rule import FAMILIES

README = Path(__file__).with_name("rules") / "README.md"
COUNTED = [Path(__file__).with_name("tour.md"), Path(__file__).parents[1] / "README.md"]


def lines_of(family: str) -> list[str]:
    return [f"- [{rule.id}]({rule.id}.md): {rule.title}" for rule in RULES.values() if rule.id.startswith(family)]


def text() -> str:
    """Return README.md with the rules of this checkout."""
    above = README.read_text(encoding="utf-8").partition("\n## ")[0]
    sections = ("\n".join([f"## {heading}", "", *lines_of(family)]) for family, heading in FAMILIES.items())
    return "\n\n".join([above.rstrip(), *sections]) + "\n"


if __name__ == "__main__":
    README.write_text(text(), encoding="utf-8")
    for document in COUNTED:
        counted = re.sub(r"\b\d+ (?=\[?rules\b)", f"{len(RULES)} ", document.read_text(encoding="utf-8"))
        document.write_text(counted, encoding="utf-8")
