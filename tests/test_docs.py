"""Whatever the documents show runs or exists: code blocks, docstring examples, commands, names, links, paths."""

from __future__ import annotations

import dataclasses
import doctest
import importlib
import io
import json
import linecache
import os
import re
import shlex
import subprocess
import sys
import types
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch
from documents import DOCUMENTS, ROOT, RULE_PAGES, anchors, blocks, code_spans, links

from dynx import cudagraphs
from dynx.cli import _parser
from dynx.cli.arguments import split

WITH_EXAMPLES = [path for path in sorted((ROOT / "dynx").rglob("*.py")) if re.search(r"^\s*>>> ", path.read_text(), re.M)]
# Languages of blocks that are neither Python nor commands: none runs, so each needs a reason.
NOT_RUN = {
    ("docs/comptime.md", "text"): "a debugger conversation; tests/comptime/conversations/ has those that are compared",
    ("docs/architecture.md", "text"): "a picture",
}
RECIPES = "docs/recipes.md"  # adds files, and parts of files; tests/test_recipes.py does
# What commands write and git does not keep.
WRITTEN = {".dynx/last.dynx", ".matrix/", ".venv"}
FOLDERS = tuple(path.name for path in ROOT.iterdir() if path.is_dir() and not path.name.startswith("."))


@pytest.fixture(autouse=True)
def no_recordings_left():
    """Free the CUDA graphs that the code of a document captured."""
    yield
    cudagraphs.reset()


def for_documents(*, but=()):
    return pytest.mark.parametrize("document", [name for name in DOCUMENTS if name not in but])


@for_documents(but=[RECIPES])
def test_python_code_blocks_of_a_document_run_in_order(document, tmp_path, monkeypatch):
    """A reader who pastes a page into one session gets no error: blocks of a page share their names."""
    module = types.ModuleType("document")
    monkeypatch.setitem(sys.modules, "document", module)  # torch imports the module of a global by its name
    monkeypatch.chdir(tmp_path)
    for block in blocks(document):
        if block.language == "python":
            file = tmp_path / f"{Path(document).stem}_line_{block.line}.py"
            file.write_text(block.text)
            linecache.checkcache()
            exec(compile(block.text, str(file), "exec"), module.__dict__)


@for_documents()
def test_code_blocks_of_a_document_have_a_known_language(document):
    """A Python block without a language would not run."""
    for block in blocks(document):
        is_known = block.language in ("python", "console") or (document, block.language) in NOT_RUN
        assert is_known, f"{document}:{block.line}: a block of language {block.language!r}"


def test_rule_pages_have_only_the_code_blocks_that_the_advice_tests_run():
    """tests/advice/test_pages.py runs one program of each of these sections, and checks what it makes dynx report."""
    for page in RULE_PAGES:
        sections = [(block.language, block.section) for block in blocks(page)]
        assert sections == [("python", "Fires on"), ("python", "Do this"), ("python", "Does not fire on")], page


@pytest.mark.parametrize("path", WITH_EXAMPLES, ids=lambda path: str(path.relative_to(ROOT)))
def test_docstring_examples_run(path):
    module = importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))
    tests = [test for test in doctest.DocTestFinder().find(module, module.__name__) if test.examples]
    assert sum(len(test.examples) for test in tests) == len(re.findall(r"^\s*>>> ", path.read_text(), re.M))
    for test in tests:
        torch._dynamo.reset()  # compile ids begin at 0/0
        report = io.StringIO()
        # torch's weak references use the globals until the functions are collected, so they are not cleared
        results = doctest.DocTestRunner().run(test, out=report.write, clear_globs=False)
        assert not results.failed, report.getvalue()


def test_no_docstring_example_is_skipped():
    assert [str(path) for path in WITH_EXAMPLES if "+SKIP" in path.read_text()] == []


# Commands of ROADMAP do not exist yet: see below. Those of the recipes use what they add: tests/test_recipes.py runs them.
@for_documents(but=["ROADMAP.md", "docs/recipes.md"])
def test_commands_in_a_document_are_valid(document):
    """A renamed option, target or file must not stay in the documents."""
    console = [line for block in blocks(document) if block.language == "console" for line in block.text.splitlines()]
    shown = [line.removeprefix("$ ") for line in console if line.startswith("$ ")]
    for command in shown + [span for span in code_spans(document) if is_command(span)]:
        words = shlex.split(command, comments=True)
        try:
            check_command(*[word for word in words if "=" not in word or word.startswith("-")])
        except (AssertionError, SystemExit) as error:
            pytest.fail(f"{document}: {command}: {error}")


def is_command(span):
    return re.match(r"(dynx|make|pytest|python|pip|bash) [\w.'-]", span) is not None


def check_command(program, *words):
    if program == "dynx":
        own = split(_parser(), words).own
        with pytest.raises(SystemExit, match=r"^0$") if len(own) == 1 else nullcontext():
            _parser().parse_args(own if len(own) > 1 else [*own, "--help"])  # the name of a command alone
    elif program == "make":
        targets = re.search(r"^\.PHONY: (.*)", (ROOT / "Makefile").read_text(), re.M)[1].split()
        assert set(words) <= set(targets)
    elif program == "pip":
        assert words[0] == "install"
        for extra in re.findall(r"\[(.*)\]", " ".join(words)):
            assert f"\n{extra} = [" in (ROOT / "pyproject.toml").read_text()
    else:
        for word in words:
            assert not re.match(r"[\w.]+/", word) or (ROOT / word.split("::")[0]).exists(), f"{word} is no file"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("document", "program", "width"),
    [("README.md", "examples/mistakes.py", 100), ("docs/screen.md", "examples/report.py", 80)],
)
def test_document_shows_the_real_report_of_an_example(document, program, width, tmp_path):
    """Only times, the order that follows from them, the version of torch and the device may differ."""
    (tmp_path / "examples").mkdir()
    (tmp_path / program).write_text((ROOT / program).read_text())
    done = subprocess.run(
        [sys.executable, "-m", "dynx", "run", program],
        cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(ROOT), "COLUMNS": str(width), "TERM": "dumb"},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=True,
    )  # fmt: skip
    printed = "\n".join(line for line in done.stdout.splitlines() if not re.match(r"[VIWEC]\d{4} ", line))  # torch's log
    (shown,) = [block.text for block in blocks(document) if block.text.startswith(f"$ dynx run {program}\n")]
    assert normalised(shown.partition("\n")[2]) == normalised(printed)


def normalised(screen):
    """Cut a screen into its paragraphs, without what depends on the machine, in an order that does not."""
    screen = re.sub(r"\d+(?:\.\d+)? m?s\b", "T", screen)
    screen = re.sub(r"torch \S+ · .+? · T", "torch V · D · T", screen)
    screen = re.sub(r"dynx rule DX\d+ explains", "dynx rule DX explains", screen)
    return sorted(re.sub(r"\s+", " ", paragraph).strip() for paragraph in re.split(r"\n\s*\n", screen.strip()))


@for_documents()
def test_links_in_a_document_resolve(document):
    for target in links(document):
        if not re.match(r"https?:", target):
            name, _, anchor = target.partition("#")
            path = (ROOT / document).parent / name if name else ROOT / document
            assert path.exists(), f"{document}: {target}"
            assert not anchor or anchor in anchors(path), f"{document}: {target}"


@for_documents()
def test_paths_named_in_a_document_exist(document):
    for span in code_spans(document):
        if re.fullmatch(r"[\w.*/-]+", span) and span.startswith(tuple(f"{name}/" for name in FOLDERS)):
            if document == RECIPES and "dummy" in span:  # that the recipe adds
                continue
            assert list(ROOT.glob(span.rstrip("/"))), f"{document}: {span}"


@pytest.mark.parametrize("document", ["README.md", "CONTRIBUTING.md"])
def test_files_named_in_readme_and_contributing_exist(document):
    """Files may be named without their folder, and may be in hidden folders."""
    names = {path.name for folder in FOLDERS for path in (ROOT / folder).rglob("*")} | {path.name for path in ROOT.iterdir()}
    for span in code_spans(document):
        if re.fullmatch(r"[\w./-]+\.(py|md|toml|txt|json|ipynb)|\.\w[\w./-]+", span) and span not in WRITTEN:
            assert (ROOT / span).exists() or ("/" not in span and span in names), f"{document}: {span}"


def test_the_architecture_page_lists_every_folder_of_the_package_once():
    folders = {f"{path.parent.relative_to(ROOT).as_posix()}/" for path in (ROOT / "dynx").rglob("*.py")}
    rows = re.findall(r"^\| *`(dynx/(?:\w+/)*)`", (ROOT / "docs" / "architecture.md").read_text(), re.M)
    assert len(rows) == len(set(rows))
    assert folders == set(rows)


@for_documents(but=["ROADMAP.md"])
def test_api_names_in_a_document_exist(document):
    for span in code_spans(document):
        if name := re.match(r"(?:dynx|guards|cudagraphs|comptime)(?:\.\w+)+", span):
            assert exists(name[0]), f"{document}: {span}"


def test_roadmap_lists_no_feature_that_exists():
    """The commit that adds a feature deletes its row."""
    rows = re.findall(r"^\| (`.*?) \|", (ROOT / "ROADMAP.md").read_text(), re.M)
    names = [name for row in rows for name in re.findall(r"`(.*?)`", row)]
    assert len(names) > 4
    for name in names:
        if name.startswith("dynx "):
            with pytest.raises(SystemExit):
                _parser().parse_args(split(_parser(), shlex.split(name)[1:]).own)
        elif re.match(r"dynx\.", name):
            assert not exists(re.match(r"[\w.]+", name)[0]), name


def exists(name):
    parts = (name if name.startswith("dynx.") else f"dynx.{name}").split(".")
    value = importlib.import_module("dynx")
    for number, part in enumerate(parts[1:], 2):
        if not hasattr(value, part):
            try:
                importlib.import_module(".".join(parts[:number]))
            except ImportError:
                return False
        value = getattr(value, part)
    return True


def test_changelog_groups_changes_under_added_changed_and_fixed():
    """Each version has its changes under the headings Added, Changed or Fixed."""
    lines = (ROOT / "CHANGELOG.md").read_text().splitlines()
    for version in "\n".join(lines).split("\n## ")[1:]:
        assert set(re.findall(r"^### (.*)", version, re.M)) <= {"Added", "Changed", "Fixed"}
        assert re.search(r"^### ", version, re.M)


def test_glossary_terms_are_in_alphabetical_order_and_defined_once():
    text = (ROOT / "docs" / "glossary.md").read_text()
    terms = []
    for group in text.split("\n## ")[1:]:
        in_group = re.findall(r"^- \*\*(.+?)\*\*", group, re.M)
        assert in_group == sorted(in_group, key=str.lower), group.splitlines()[0]
        terms += in_group
    assert len(terms) > 40
    assert len(terms) == len(set(terms))


def test_every_document_is_reachable_from_the_readme():
    seen, todo = set(), ["README.md"]
    while todo:
        document = todo.pop()
        if document not in seen:
            seen.add(document)
            targets = [(ROOT / document).parent / target.partition("#")[0] for target in links(document) if ":" not in target]
            todo += [os.path.relpath(path, ROOT) for path in targets if path.suffix == ".md"]
    assert set(DOCUMENTS) <= seen


def test_cuda_graph_numbers_in_the_docs_match_the_saved_benchmark_results():
    """Tables must not be typed by hand or be older than the measurement."""
    rows = json.loads((ROOT / "benchmarks" / "results" / "cudagraphs-h200.json").read_text())["rows"]
    measured = {(row["model"], row["name"]): row for row in rows}
    numbers = (ROOT / "docs" / "cudagraphs.md").read_text().partition("\n## Numbers\n")[2].partition("\n**Bounds")[0]
    tables = [table.splitlines() for table in re.split(r"\n\n+(?=\|)", numbers) if table.startswith("|")]
    assert len(tables) == 5
    for head, _, *lines in tables:
        model, *columns = cells(head)
        (base, *_), *_ = table = [cells(line) for line in lines]
        for name, *values in table:
            for column, value in zip(columns, values, strict=True):
                row = measured[model, name]
                if column == "memory added":
                    assert value == f"{row['megabytes']:.0f} MB", (model, name)
                else:
                    kind, _, against = column.partition(", against ")
                    assert value == f"{row[kind] / measured[model, against or base][kind]:.2f}x", (model, name, column)
    (ratio,) = [values[1] for name, *values in map(cells, tables[3][2:]) if name == "dynx.train_step, checked"]
    assert f"takes {ratio.rstrip('x')} times as long" in (ROOT / "docs" / "tour.md").read_text()


def test_tables_of_pieces_and_parts_match_the_saved_benchmark_results():
    results, page = ROOT / "benchmarks" / "results", (ROOT / "docs" / "cudagraphs.md").read_text()
    pieces = json.loads((results / "pieces-h100.json").read_text())["rows"]
    shown = {(row["model"], row["way"]): f"{row['wall']:.2f}x, {row['kernels']}" for row in pieces}
    assert table_after(page, "### Graphs that inductor compiles in pieces").items() <= shown.items()
    parts = json.loads((results / "host-parts-h100.json").read_text())["rows"]
    wholes = {row["call"]: row["microseconds"] for row in parts if row["part"] == "whole"}
    shares = {
        (row["call"], row["part"]): f"{row['microseconds'] / wholes[row['call']]:.0%}".replace("%", " %") for row in parts
    }
    shown = table_after(page, "### Where the time of a call goes")
    assert {place: share for place, share in shown.items() if share}.items() <= shares.items()


def table_after(page, heading):
    """Return the values of the first table after a heading, by the names of column and row."""
    head, _, *lines = re.search(r"(?:^\|.*\n)+", page.partition(heading)[2], re.MULTILINE)[0].splitlines()
    rows = [cells(line) for line in lines]
    return {(column, name): value for name, *values in rows for column, value in zip(cells(head)[1:], values, strict=True)}


def test_every_option_of_cudagraphs_config_is_documented():
    table = (ROOT / "docs" / "cudagraphs.md").read_text().partition("\n### Options\n")[2].partition("\n**")[0]
    shown = {name for row in table.splitlines() for name in re.findall(r"`([a-z_]+)`", row.partition(" | ")[0])}
    assert shown == {option.name for option in dataclasses.fields(cudagraphs.Config)}


def cells(line):
    return [cell.strip() for cell in line.strip("|").split("|")]
