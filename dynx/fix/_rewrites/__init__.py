"""Write a fix into the files of a program: each way to do so is a set of changed files, which a trial then runs."""

from __future__ import annotations

import sysconfig
from collections.abc import Iterator, Mapping
from pathlib import Path

from dynx.fix._rewrites import arguments, attribute, branch, check, eager_only, first_call, index, option, statement
from dynx.fix._rewrites.source import Source, parse
from dynx.fix._source_file import read
from dynx.records import Finding
from dynx.records.fix import Fix

MOST = 4  # ways to write one fix that are tried


class Files:
    """The texts of the files of a program: those that a fix has changed, and the others on disk."""

    def __init__(self, changed: Mapping[str, str], main: str | None) -> None:
        self._changed = changed
        self.main = main

    def parse(self, file: str | None) -> Source | None:
        """Return the syntax tree of a file; None if it is no Python file of the user that can be parsed."""
        text = self.text(file) if file is not None else None
        return parse(text) if text is not None else None

    def text(self, file: str) -> str | None:
        """Return the text of a file; None if there is none."""
        if file in self._changed:
            return self._changed[file]
        try:
            return read(file)
        except (OSError, UnicodeDecodeError, SyntaxError):
            return None


def ways(files: Files, finding: Finding, fix: Fix) -> Iterator[dict[str, str]]:
    """Yield the changed files, by path, for each way to write a fix into them."""
    number = 0
    for file, text in _texts(files, finding, fix):
        before = files.text(file)
        if before is not None and text != before and not _is_of_library(file):
            yield {file: text if fix.kind == "option" else statement.with_torch(before, text)}
            number += 1
        if number == MOST:
            return


def _is_of_library(file: str) -> bool:
    """Return whether a file is one of an installed package or of Python, which is not the user's to change."""
    parts = Path(file).parts
    return "site-packages" in parts or "dist-packages" in parts or Path(file).is_relative_to(sysconfig.get_path("stdlib"))


def _texts(files: Files, finding: Finding, fix: Fix) -> Iterator[tuple[str, str]]:
    place = finding.location.own
    if fix.kind == "stance" and any(_is_first_call(other) for other in finding.fixes):
        return  # that one changes less of the program
    if fix.kind in ("statement", "stance") and (source := files.parse(files.main)) is not None and files.main is not None:
        own = {path.stem for path in Path(files.main).parent.iterdir()}
        for text in statement.insert(source, fix.code, own):
            yield files.main, text
    elif fix.kind == "option":
        for file in dict.fromkeys(filter(None, (place.file, files.main))):
            if (source := files.parse(file)) is not None:
                for text in option.add(source, fix.code, place.function):
                    yield file, text
    elif _is_first_call(fix) and fix.called_from is not None:
        if (source := files.parse(fix.called_from.file)) is not None:
            for text in first_call.eagerly(source, fix):
                yield fix.called_from.file, text
    elif fix.called_from is not None and fix.location is not None:
        source, definition = files.parse(fix.called_from.file), files.parse(fix.location.file)
        if source is not None and definition is not None:
            write = arguments.mark if fix.kind == "mark" else arguments.as_tensor
            for text in write(source, definition, fix):
                yield fix.called_from.file, text
    elif fix.code.startswith("a tensor as "):
        for file in dict.fromkeys(filter(None, (place.file, files.main))):
            if (source := files.parse(file)) is not None:
                for text in attribute.as_tensor(source, fix.code.rpartition(".")[2]):
                    yield file, text
    elif fix.code in _AT_LINE and fix.location is not None and (source := files.parse(fix.location.file)) is not None:
        for text in _AT_LINE[fix.code](source, fix.location.line):
            yield fix.location.file, text


def _is_first_call(fix: Fix) -> bool:
    return fix.kind == "rewrite" and fix.code.startswith("with ")


_AT_LINE = {
    "index with a tensor of one element": index.by_element,
    "torch.where instead of if": branch.where,
    "torch._assert_async instead of if: raises RuntimeError": check.check,
    "only in eager code: compiled code no longer logs": eager_only.eager_only,
}
