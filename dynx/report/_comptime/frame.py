"""Render the source of a frame that Dynamo traces."""

from __future__ import annotations

from rich.console import RenderableType
from rich.text import Text

from dynx.records import FrameState


def source(frame: FrameState) -> RenderableType:
    """Render the source lines around the traced instruction, with an arrow at its line and its columns underlined."""
    text = Text(no_wrap=True, overflow="ellipsis")
    for offset, code in enumerate(frame.source):
        number = frame.first_line + offset
        here = number == frame.location.line
        text.append(f"{'▶' if here else ' '} {number:>4}  ", style="bold red" if here else "dim")
        text.append_text(marked(code, frame) if here else Text(code, style="dim"))
        text.append("\n")
    text.rstrip()
    return text


def line(frame: FrameState) -> RenderableType:
    """Render the source line of the traced instruction, with the line number."""
    number = (f"  {frame.location.line:>4}  ", "dim")
    return Text.assemble(number, marked(text_of(frame), frame), no_wrap=True, overflow="ellipsis")


def text_of(frame: FrameState) -> str:
    """Return the source line of the traced instruction; empty if the record does not have it."""
    offset = frame.location.line - frame.first_line
    return frame.source[offset] if 0 <= offset < len(frame.source) else ""


def marked(text: str, frame: FrameState) -> Text:
    """Render a source line with the columns of the traced instruction underlined."""
    before, marked, after = parts(text, frame)
    return Text.assemble(before, (marked, "bold underline"), after)


def parts(text: str, frame: FrameState) -> tuple[str, str, str]:
    """Split a source line into the text before, in and after the columns of the traced instruction.

    Python counts columns in UTF-8 bytes.
    """
    start, end = frame.location.column, frame.location.end_column
    if start is None:
        return text, "", ""
    raw = text.encode()
    stop = len(raw) if end is None else end
    return raw[:start].decode(errors="ignore"), raw[start:stop].decode(errors="ignore"), raw[stop:].decode(errors="ignore")
