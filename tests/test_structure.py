"""The shape of the package: small folders, small files, few levels of imports."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = sorted(folder for folder in (ROOT / "dynx").rglob("*") if folder.is_dir() and (folder / "__init__.py").exists())
MANY = {"records"}  # each of its files is a table of its own


def children(folder: Path) -> list[str]:
    return [path.stem for path in folder.iterdir() if path.suffix == ".py" and path.stem != "__init__"]


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: str(folder.relative_to(ROOT)))
def test_a_folder_holds_at_most_fifteen_modules(folder):
    assert folder.name in MANY or len(children(folder)) <= 15


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: str(folder.relative_to(ROOT)))
def test_the_first_page_of_a_folder_says_what_it_holds(folder):
    assert (folder / "__init__.py").read_text().startswith('"""')


def test_files_stay_below_five_hundred_lines():
    """A reader holds one concept at a time; the median stays below 150."""
    lengths = {path: len(path.read_text().splitlines()) for path in (ROOT / "dynx").rglob("*.py")}
    assert {path: length for path, length in lengths.items() if length > 500} == {}
    assert sorted(lengths.values())[len(lengths) // 2] < 150


@cache
def import_graph():
    grimp = pytest.importorskip("grimp", reason="needs import-linter, which the development environment has")
    return grimp.build_graph("dynx", cache_dir=None)


@pytest.mark.parametrize("folder", [ROOT / "dynx", *FOLDERS], ids=lambda folder: str(folder.relative_to(ROOT)))
def test_imports_inside_of_a_package_have_at_most_seven_levels(folder):
    """Whoever follows a call downwards is at the bottom after seven jumps."""
    graph, package = import_graph(), ".".join(folder.relative_to(ROOT).parts)
    siblings = graph.find_children(package)
    below = {name: {other for other in siblings - {name} if imports(graph, name, other)} for name in siblings}

    @cache
    def level(name: str, seen: frozenset[str] = frozenset()) -> int:
        return 1 + max((level(other, seen | {name}) for other in below[name] - seen), default=0)

    limit = 16 if package == "dynx" else 7  # the layers of the whole package are a contract of import-linter
    deepest = max(siblings, key=level, default=None)
    assert deepest is None or level(deepest) <= limit, deepest


def imports(graph, importer: str, imported: str) -> bool:
    targets = graph.find_descendants(imported) | {imported}
    importers = graph.find_descendants(importer) | {importer}
    return any(graph.find_modules_directly_imported_by(module) & targets for module in importers)
