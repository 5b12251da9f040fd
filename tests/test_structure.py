"""The shape of the package: small folders, small files, few levels of imports."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

pytestmark = pytest.mark.every_case
ROOT = Path(__file__).parents[1]
FOLDERS = sorted(folder for folder in (ROOT / "dynx").rglob("*") if folder.is_dir() and (folder / "__init__.py").exists())
MANY = {"records"}  # exempt: each of its files defines the records of one table


def children(folder: Path) -> list[str]:
    return [path.stem for path in folder.iterdir() if path.suffix == ".py" and path.stem != "__init__"]


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: str(folder.relative_to(ROOT)))
def test_package_folder_has_at_most_fifteen_modules(folder):
    assert folder.name in MANY or len(children(folder)) <= 15


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: str(folder.relative_to(ROOT)))
def test_init_file_of_every_package_begins_with_a_docstring(folder):
    assert (folder / "__init__.py").read_text().startswith('"""')


def test_source_files_have_at_most_five_hundred_lines():
    """A file has one concept; the median length stays below 150 lines."""
    lengths = {path: len(path.read_text().splitlines()) for path in (ROOT / "dynx").rglob("*.py")}
    assert {path: length for path, length in lengths.items() if length > 500} == {}
    assert sorted(lengths.values())[len(lengths) // 2] < 150


@cache
def import_graph():
    grimp = pytest.importorskip("grimp", reason="needs import-linter, which the development environment has")
    return grimp.build_graph("dynx", cache_dir=None)


@pytest.mark.parametrize("folder", [ROOT / "dynx", *FOLDERS], ids=lambda folder: str(folder.relative_to(ROOT)))
def test_imports_inside_a_package_have_at_most_seven_levels(folder):
    """A reader who follows the imports inside a package reaches the last module after seven steps at most."""
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
