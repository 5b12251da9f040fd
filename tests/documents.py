"""Reads Markdown documents: their code blocks, code spans, links and anchors."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
DOCUMENTS = sorted(
    path.relative_to(ROOT).as_posix() for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("docs/*/README.md")]
)
RULE_PAGES = sorted(path.relative_to(ROOT).as_posix() for path in ROOT.glob("docs/rules/DX*.md"))
_FENCE = re.compile(r"^( *)```([^\n]*)\n(.*?)^\1```$", re.M | re.S)


@dataclass(frozen=True)
class Block:
    language: str
    text: str
    line: int
    section: str


def blocks(document: str) -> list[Block]:
    """Return the fenced code blocks, with the line of each fence and the heading that it is under."""
    text = (ROOT / document).read_text()
    found = []
    for match in _FENCE.finditer(text):
        before = text[: match.start()]
        headings = re.findall(r"^#+ (.*)", _FENCE.sub("", before), re.M)
        found.append(Block(match[2].strip(), match[3], before.count("\n") + 1, headings[-1] if headings else ""))
    return found


def prose(path: Path) -> str:
    """Return the text without fenced code blocks."""
    return _FENCE.sub("", path.read_text())


def code_spans(document: str) -> list[str]:
    """Return the code spans, which are between single backticks; a span may continue on the next line."""
    return [" ".join(span.split()) for span in re.findall(r"`([^`]+)`", prose(ROOT / document))]


def links(document: str) -> list[str]:
    text = re.sub(r"`[^`]*`", "", prose(ROOT / document))
    return re.findall(r"\]\(([^)\s]+)\)", text)


def anchors(path: Path) -> set[str]:
    """Return the anchors of headings, as GitHub derives them."""
    titles = re.findall(r"^#+ (.*)", prose(path), re.M)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}
