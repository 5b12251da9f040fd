"""Numbers in the documents are those of the code: one that is stale fails here."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import chain

import pytest
from documents import DOCUMENTS, ROOT, RULE_PAGES

from dynx.advice import RULES
from dynx.cli import _parser
from dynx.cli.program.trying import BUDGET
from dynx.report import _doctor, _findings

WORDS = {"ten": 10, "twelve": 12, "twenty": 20, "fifty": 50, "sixty": 60}
NUMBER = rf"(?P<number>\d[\d,]*(?:\.\d+)*|{'|'.join(WORDS)})"


def default_of(script: str, option: str) -> Callable[[], float]:
    """Return a function that reads the default of an option of a program that is no part of the package."""

    def read() -> float:
        return float(re.search(rf'"{option}", type=int, default=(\d+)', (ROOT / script).read_text())[1])

    return read


def bound_of(measurement: str) -> Callable[[], float]:
    """Return a function that reads the bound of a measurement of `dynx.watch()`."""

    def read() -> float:
        source = (ROOT / "benchmarks" / "observers.py").read_text()
        return float(re.search(rf'"{measurement}".*?bound=([\d.]+)', source, re.S)[1])

    return read


# what stands in a document, with line breaks and links removed, and the number that belongs there
COUNTS: dict[str, Callable[[], float]] = {
    rf"\b{NUMBER} (?:advice )?rules\b": lambda: len(RULES),
    rf"\b{NUMBER} (?:pages of rules|rule pages)\b": lambda: len(RULE_PAGES),
    rf"\b{NUMBER} commands\b": lambda: len(_parser().commands),
    rf"\b{NUMBER} notebooks\b": lambda: len(list((ROOT / "notebooks").glob("*.ipynb"))),
    rf"inserts calls at {NUMBER} random lines": default_of("tests/fuzz/rewrite.py", "--pairs"),
    rf"changes {NUMBER} things of compiled models": default_of("tests/fuzz/mutations.py", "--changes"),
    rf"for {NUMBER} seconds at most, and shows": lambda: BUDGET,
    rf"\(default: {NUMBER}; all with --full\)": lambda: _findings.TOP,
    rf"\bthe {NUMBER} (?:findings )?that cost most\b": lambda: _findings.TOP,
    rf"\b{NUMBER} without the option\b": lambda: _findings.TOP,
    rf"\b{NUMBER} most expensive (?:findings are shown|rows)": lambda: _findings.TOP,
    rf"makes? compilation take more than {NUMBER} times as long": bound_of("compile time, GPT-2"),
    rf"calls? (?:of compiled code )?more than {NUMBER} times": bound_of("calls, one operation"),
}
NOUNS = "rules|rule pages|commands|notebooks|tests|programs|examples|canaries|codecs"  # whose number must be in the table


def text_of(document: str) -> str:
    """Return a document on one line, with links as their texts."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", (ROOT / document).read_text())
    return re.sub(r"\s+", " ", text)


def value_of(text: str) -> float:
    return WORDS.get(text) or float(text.replace(",", ""))


@pytest.mark.parametrize("pattern", COUNTS)
def test_a_number_in_a_document_is_that_of_the_code(pattern):
    """README said that tests run the programs of 57 rules when there were 60."""
    for document in DOCUMENTS:
        for match in re.finditer(pattern, text_of(document)):
            assert value_of(match["number"]) == COUNTS[pattern](), f"{document}: {match[0]}"


def test_every_number_of_things_that_change_is_checked():
    """Somebody who writes a number of tests or rules into a document adds how it is counted, or leaves it out."""
    for document in DOCUMENTS:
        text = text_of(document)
        checked = {match.start("number") for match in chain.from_iterable(re.finditer(pattern, text) for pattern in COUNTS)}
        for match in re.finditer(rf"\b{NUMBER} (?:\w+ )?(?:{NOUNS})\b", text):
            assert match.start("number") in checked, f"{document}: {match[0]}"


def test_the_number_of_rules_is_in_the_readme():
    assert any(f"{len(RULES)} rules" in text_of(document) for document in ("README.md",))


def test_supported_versions_of_torch_are_the_same_everywhere():
    requirement = re.search(r'"torch>=([\d.]+)', (ROOT / "pyproject.toml").read_text())
    assert requirement is not None
    first, last = re.fullmatch(r"torch ([\d.]+) to ([\d.]+)", _doctor._SUPPORTED).groups()
    assert requirement[1].startswith(first)
    for document in DOCUMENTS:
        for found in re.findall(r"\b(2\.\d+) to (2\.\d+)\b", text_of(document)):
            assert found == (first, last), document
