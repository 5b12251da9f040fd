"""Write the list of all rules into rules/README.md, below its first section: `make rules`."""

from __future__ import annotations

from pathlib import Path

from dynx.advice import RULES
from dynx.cli.rule import FAMILIES

README = Path(__file__).with_name("rules") / "README.md"


def lines_of(family: str) -> list[str]:
    return [f"- [{rule.id}]({rule.id}.md): {rule.title}" for rule in RULES.values() if rule.id.startswith(family)]


def text() -> str:
    """Return README.md with the rules of this checkout."""
    above = README.read_text(encoding="utf-8").partition("\n## ")[0]
    sections = ("\n".join([f"## {heading}", "", *lines_of(family)]) for family, heading in FAMILIES.items())
    return "\n\n".join([above.rstrip(), *sections]) + "\n"


if __name__ == "__main__":
    README.write_text(text(), encoding="utf-8")
