"""Find the ways to write a fix into the source files of a program. Each way is then tried by running the changed program."""

from __future__ import annotations

import sysconfig
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path

from dynx._rewrites import arguments, attribute, blocks, branch, check, condition, index, option, statement
from dynx._rewrites.source import Source, parse
from dynx._rewrites.source_file import read
from dynx.records import Finding, Location
from dynx.records.fix import Fix, Rewrite

MOST = 4  # ways to write one fix that are tried
_OF_LINES: Mapping[Rewrite, Callable[[Source, int], Iterator[str]]] = {
    "where": branch.where,
    "assert": check.check,
    "eager only": blocks.eager_only,
    "index": index.by_element,
    "condition": condition.decided,
}


class Files:
    """The texts of the source files of a program: as earlier fixes have changed them, or else as on disk."""

    def __init__(self, changed: Mapping[str, str], main: str | None) -> None:
        self._changed = changed
        self.main = main

    def parse(self, file: str) -> Source | None:
        """Return the syntax tree of a file; None if the file cannot be read or parsed."""
        text = self.text(file)
        return parse(text) if text is not None else None

    def text(self, file: str) -> str | None:
        """Return the text of a file; None if it cannot be read."""
        if file in self._changed:
            return self._changed[file]
        try:
            return read(file)
        except (OSError, UnicodeDecodeError, SyntaxError):
            return None


def ways(files: Files, finding: Finding, fix: Fix) -> Iterator[dict[str, str]]:
    """Yield at most `MOST` ways to write a fix, each as a dict from the path of the changed file to its new text."""
    changes = (
        {file: text if fix.kind == "option" else statement.with_torch(before, text)}
        for file, text in _texts(files, finding, fix)
        if (before := files.text(file)) is not None and text != before and not is_of_library(file)
    )
    return islice(changes, MOST)


def is_of_library(file: str) -> bool:
    """Return whether a file belongs to an installed package or to Python; such files are not changed."""
    parts = Path(file).parts
    return "site-packages" in parts or "dist-packages" in parts or Path(file).is_relative_to(sysconfig.get_path("stdlib"))


def _texts(files: Files, finding: Finding, fix: Fix) -> Iterator[tuple[str, str]]:
    """Yield path and new text of a file for each way to write a fix; the caller drops unchanged texts and library files."""
    place = finding.location.own
    match fix.kind:
        case "statement":
            for main, source in _parsed(files, files.main):
                own = {path.stem for path in Path(main).parent.iterdir()}
                yield from _in(main, statement.insert(source, fix.code, own))
        case "option":
            for file, source in _parsed(files, place.file, files.main):
                yield from _in(file, option.add(source, fix.code, place.function))
        case "mark":
            yield from _at_call(files, fix, arguments.mark)
        case "rewrite" if fix.rewrite is not None:
            yield from _rewritten(files, place, fix, fix.rewrite)


def _rewritten(files: Files, place: Location, fix: Fix, how: Rewrite) -> Iterator[tuple[str, str]]:
    match how:
        case "tensor argument":
            yield from _at_call(files, fix, arguments.as_tensor)
        case "tensor attribute":
            for file, source in _parsed(files, place.file, files.main):
                yield from _in(file, attribute.as_tensor(source, fix.attribute.rpartition(".")[2]))
        case _:
            for file, source in _parsed(files, fix.location.file if fix.location is not None else None):
                yield from _in(file, at_line(source, fix))


def at_line(source: Source, fix: Fix) -> Iterator[str]:
    """Yield the new text of a file for each way to write a fix that changes the line `fix.location`; none for other fixes."""
    write = _OF_LINES.get(fix.rewrite) if fix.rewrite is not None else None
    if write is not None and fix.location is not None:
        yield from write(source, fix.location.line)


def _at_call(files: Files, fix: Fix, write: Callable[[Source, Source, Fix], Iterable[str]]) -> Iterator[tuple[str, str]]:
    if fix.called_from is None or fix.location is None:
        return
    source, definition = files.parse(fix.called_from.file), files.parse(fix.location.file)
    if source is not None and definition is not None:
        yield from _in(fix.called_from.file, write(source, definition, fix))


def _parsed(files: Files, *paths: str | None) -> Iterator[tuple[str, Source]]:
    """Yield the path and the syntax tree of each file that can be parsed, without duplicates; a path may be None."""
    for path in dict.fromkeys(filter(None, paths)):
        if (source := files.parse(path)) is not None:
            yield path, source


def _in(file: str, texts: Iterable[str]) -> Iterator[tuple[str, str]]:
    return ((file, text) for text in texts)
