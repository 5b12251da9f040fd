"""Each recipe of docs/recipes.md is followed literally, in a copy of the checkout."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
from documents import ROOT

FOLDERS = ("dynx", "docs", "tests", "examples", "benchmarks")
NEW = re.compile(r"A\s+new\s+file,\s+`(?P<file>[^`]+)`:\n\n```python\n(?P<text>.*?)^```", re.M | re.S)
INSERT = re.compile(
    r"In\s+`(?P<file>[^`]+)`,\s+(?P<where>above|below)\s+`(?P<line>[^`]+)`:\n\n```python\n(?P<text>.*?)^```", re.M | re.S
)
REPLACE = re.compile(r"In\s+`(?P<file>[^`]+)`,\s+replace\s+`(?P<old>[^`]+)`\s+by\s+`(?P<new>[^`]+)`")
COMMANDS = re.compile(r"```console\n(?P<commands>.*?)^```", re.M | re.S)


class Recipe(NamedTuple):
    title: str
    text: str

    @property
    def commands(self) -> list[str]:
        return [line.removeprefix("$ ") for block in COMMANDS.findall(self.text) for line in block.splitlines()]


def recipes() -> list[Recipe]:
    """Return the sections of the document whose steps are files, insertions and commands."""
    _, *sections = re.split(r"^## ", (ROOT / "docs" / "recipes.md").read_text(), flags=re.M)
    titled = [Recipe(*section.split("\n", 1)) for section in sections]
    return [recipe for recipe in titled if NEW.search(recipe.text) or INSERT.search(recipe.text)]


def follow(recipe: Recipe, checkout: Path) -> None:
    """Write the new files and the insertions of a recipe into a checkout."""
    for step in NEW.finditer(recipe.text):
        (checkout / step["file"]).write_text(step["text"])
    for step in INSERT.finditer(recipe.text):
        file = checkout / step["file"]
        lines = file.read_text().splitlines(keepends=True)
        (number,) = [number for number, line in enumerate(lines) if line.startswith(step["line"])]
        lines.insert(number + (step["where"] == "below"), step["text"])
        file.write_text("".join(lines))
    for step in REPLACE.finditer(recipe.text):
        file = checkout / step["file"]
        assert file.read_text().count(step["old"]) == 1
        file.write_text(file.read_text().replace(step["old"], step["new"]))


def run(command: str, checkout: Path) -> subprocess.CompletedProcess:
    programs = {"pytest": "-m pytest -q -p no:cacheprovider", "dynx": "-m dynx", "python": ""}
    functions = "".join(f'{name}() {{ "{sys.executable}" {words} "$@"; }}\n' for name, words in programs.items())
    return subprocess.run(
        ["bash", "-c", functions + command],
        cwd=checkout,
        env=os.environ | {"PYTHONPATH": f"{checkout}{os.pathsep}{checkout / 'tests'}"},
        capture_output=True,
        text=True,
    )


@pytest.fixture
def checkout(tmp_path):
    for folder in FOLDERS:
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
    for file in ("pyproject.toml", "README.md", "CHANGELOG.md", "CONTRIBUTING.md", "ROADMAP.md", "Makefile"):
        shutil.copy(ROOT / file, tmp_path / file)
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize("recipe", recipes(), ids=lambda recipe: recipe.title)
def test_a_recipe_that_is_followed_literally_passes_the_tests_that_it_names(recipe, checkout):
    follow(recipe, checkout)
    for command in recipe.commands:
        done = run(command, checkout)
        assert done.returncode == 0, f"{command}\n{done.stdout[-4000:]}\n{done.stderr[-2000:]}"


def test_every_recipe_is_found():
    assert [recipe.title for recipe in recipes()] == [
        "Add a rule", "Add a kind of record", "Add a command", "Add a fix", "Add a hook point", "Use a private name of torch",
    ]  # fmt: skip
    assert all(recipe.commands for recipe in recipes())
