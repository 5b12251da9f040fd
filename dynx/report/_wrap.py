"""Wrap text between words, but not inside a location `path:line`; a location that is too long loses its first folders."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from rich.cells import cell_len, chop_cells
from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.text import Text

UNBROKEN = "\u00a0"  # a space that does not end a word, as in a path with spaces; shown as an ordinary space
_WORD = re.compile(rf"(?:\S|{UNBROKEN})+")
_PLACE = re.compile(r"""(?P<before>[('"`\[]*)(?P<path>.+)(?P<after>:\d+\D*)""", re.DOTALL)
_PART = re.compile(r"[^.(,/]*[.(,/]+|[^.(,/]+")  # parts of a long name
_SMALL_PART = re.compile(r"[^_]*_+|[^_]+")
_TAIL = 28  # columns that are reserved for a file name and line, even if the name is longer


def unbroken(text: str) -> str:
    """Return a text with its spaces replaced by no-break spaces, at which it is not wrapped."""
    return text.replace(" ", UNBROKEN)


def ordinary(text: str) -> str:
    """Return a text with ordinary spaces instead of no-break spaces, for output that is not wrapped."""
    return text.replace(UNBROKEN, " ")


def lines(text: Text, width: int) -> list[Text]:
    """Return the lines of a text wrapped to `width` columns of the terminal; empty lines of the text are kept."""
    if text.cell_len <= width and "\n" not in text.plain:
        return [_shown(text)]
    return [line for part in text.split("\n", allow_blank=True) for line in _wrapped(part, max(1, width))]


def least(text: Text) -> int:
    """Return the least width in columns, at most `_TAIL`, at which all locations in a text keep file name and line number."""
    tails = (_tail(match[0]) for match in _WORD.finditer(text.plain))
    return max((min(cell_len(tail), _TAIL) for tail in tails if tail), default=1)


def shortened(place: str, width: int) -> str:
    """Return a location `path:line` shortened to `width` columns: it loses folders, then the start of the file name."""
    match = _PLACE.fullmatch(place)
    if match is None or cell_len(place) <= width:
        return place
    before, path, after = match.group("before", "path", "after")
    room = width - cell_len(before) - cell_len(after)
    folders = path.replace("\\", "/").split("/")
    for first in range(1, len(folders)):
        short = "/".join(["…", *folders[first:]])
        if cell_len(short) <= room:
            return f"{before}{short}{after}"
    name, start, used = folders[-1], len(folders[-1]), 1
    while start and (used := used + cell_len(name[start - 1])) <= room:
        start -= 1
    return f"{before}…{name[start:]}{after}"


def _tail(word: str) -> str:
    """Return a word `path:line` without its folders, such as `…/model.py:58`; empty for a word that is no location."""
    match = _PLACE.fullmatch(word)
    if match is None:
        return ""
    *folders, name = match["path"].replace("\\", "/").split("/")
    return f"{match['before']}{'…/' if folders else ''}{name}{match['after']}"


def _wrapped(text: Text, width: int) -> Sequence[Text]:
    if text.cell_len > width:
        text = _with_short_places(text, width)
    starts: list[int] = []
    column = last = 0
    for match in _WORD.finditer(text.plain):
        gap, size = match.start() - last, cell_len(match[0])
        if column and column + gap + size > width:
            starts.append(match.start())
            column = gap = 0
        column, last = column + gap, match.end()
        for at in _splits(match[0], width, column):
            starts.append(match.start() + at)
            column, size = 0, cell_len(match[0][at:])
        column += size
    parts = list(text.divide(starts))
    for part in parts:
        part.rstrip()
    return [_shown(part) for part in parts]


def _with_short_places(text: Text, width: int) -> Text:
    """Return the text with each location `path:line` shortened to at most `width` columns."""
    parts, last = [], 0
    for match in _WORD.finditer(text.plain):
        short = shortened(match[0], width)
        if short != match[0]:
            before, _, kept = short.rpartition("…")
            mark, rest = match.start() + len(before), match.end() - len(kept)
            ellipsis = text[mark : mark + 1]
            ellipsis.plain = "…"
            parts += [text[last:mark], ellipsis]
            last = rest
    return Text("").join([*parts, text[last:]]) if parts else text


def _splits(word: str, width: int, column: int) -> Iterator[int]:
    """Yield the indices at which to split a word longer than a line: after one of `./(,`, else after `_`, else anywhere."""
    if column + cell_len(word) <= width:
        return
    at, used = 0, column
    for piece in _pieces(word, width):
        if at and used + cell_len(piece) > width:
            yield at
            used = 0
        at, used = at + len(piece), used + cell_len(piece)


def _pieces(word: str, width: int) -> Iterator[str]:
    for part in _PART.findall(word):
        if cell_len(part) <= width:
            yield part
        else:
            for small in _SMALL_PART.findall(part):
                yield from chop_cells(small, width)


def _shown(text: Text) -> Text:
    if UNBROKEN in text.plain:
        text = text.copy()
        text.plain = ordinary(text.plain)
    return text


class Wrapped:
    """Rich renderable of a text that is wrapped by the function `lines`, which splits no location `path:line`."""

    def __init__(self, text: Text | str) -> None:
        self._text = text if isinstance(text, Text) else Text(text)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for line in lines(self._text, options.max_width):
            line.no_wrap, line.overflow = True, "ignore"
            yield line

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        widest = max((line.cell_len for line in self._text.split("\n", allow_blank=True)), default=0)
        return Measurement(min(least(self._text), widest), widest)
