"""The source of one symbolic frame."""

from __future__ import annotations

from rich.console import RenderableType
from rich.text import Text

from dynx.records import FrameState


def source(frame: FrameState) -> RenderableType:
    """Give the lines around a frame's place, with an arrow, and the instruction's columns marked."""
    text = Text(no_wrap=True, overflow="ellipsis")
    for offset, each in enumerate(frame.source):
        number = frame.first_line + offset
        here = number == frame.location.line
        text.append(f"{'▶' if here else ' '} {number:>4}  ", style="bold red" if here else "dim")
        text.append_text(marked(each, frame) if here else Text(each, style="dim"))
        text.append("\n")
    text.rstrip()
    return text


def line(frame: FrameState) -> RenderableType:
    """Give the line of a frame's place."""
    offset = frame.location.line - frame.first_line
    text = frame.source[offset] if 0 <= offset < len(frame.source) else ""
    return Text.assemble((f"  {frame.location.line:>4}  ", "dim"), marked(text, frame), no_wrap=True, overflow="ellipsis")


def marked(text: str, frame: FrameState) -> Text:
    before, marked, after = parts(text, frame)
    return Text.assemble(before, (marked, "bold underline"), after)


def parts(text: str, frame: FrameState) -> tuple[str, str, str]:
    """Part a line before and behind the instruction's columns, which count bytes, as Python does."""
    start, end = frame.location.column, frame.location.end_column
    if start is None:
        return text, "", ""
    raw = text.encode()
    stop = len(raw) if end is None else end
    return raw[:start].decode(errors="ignore"), raw[start:stop].decode(errors="ignore"), raw[stop:].decode(errors="ignore")
