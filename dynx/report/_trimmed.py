"""Remove the blanks that rich appends to the lines of tables and paddings."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.measure import Measurement
from rich.segment import Segment


class Trimmed:
    """Rich renderable of `content` without trailing blanks. Blanks with a background are kept if the console has colors."""

    def __init__(self, content: RenderableType) -> None:
        self._content = content

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for line in console.render_lines(self._content, options, pad=False):
            yield from reversed(list(_trimmed(reversed(line), has_colors=console.color_system is not None)))
            yield Segment.line()

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement.get(console, options, self._content)


def _trimmed(segments: Iterator[Segment], *, has_colors: bool) -> Iterator[Segment]:
    """Yield the segments of a line in reverse order, without the blanks at its end; `segments` must be in reverse order too."""
    is_end = True
    for segment in segments:
        if is_end and not segment.control and not (has_colors and segment.style is not None and segment.style.bgcolor):
            text = segment.text.rstrip()
            is_end = not text
            segment = Segment(text, segment.style)
        else:
            is_end = False
        if segment.text:
            yield segment
