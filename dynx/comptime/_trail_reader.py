"""Read a trail: the state before an instruction, and the instructions that a person goes through."""

from __future__ import annotations

import linecache
from collections.abc import Mapping

from dynx._bytecode.trail import NOTHING, Trail
from dynx._torch.compilation.frame import user_name
from dynx._torch.tracing.stack import RawFrame
from dynx._trace.user_location import is_visible, location_of, named, owner_of_file
from dynx.records import FrameState, Location, TraceState
from dynx.records.comptime import TracedGuard


def is_shown(trail: Trail, row: int, internals: bool = False) -> bool:
    """Tell whether an instruction is of the user's code or a library's, not of torch or the standard library.

    What torch puts before the rest of a function, to get there after a graph break, is its own.
    """
    code = trail.codes[trail.frame(row).code]
    if code.resumes_at is not None and trail.place(trail.row(row).place).number < code.resumes_at:
        return internals
    return internals or is_visible(code.original.co_filename)


def history(trail: Trail, internals: bool = False) -> list[int]:
    """List the instructions in the order they count: attempts that were started over are left out."""
    return [row for row in range(len(trail)) if not trail.attempt(row).is_superseded and is_shown(trail, row, internals)]


def state(trail: Trail, row: int, internals: bool = False) -> TraceState:
    """Give what was known before an instruction."""
    found = trail.progress(row)
    attempt = trail.attempt(row)
    return TraceState(
        row,
        attempt.compile_id,
        attempt.nth,
        tuple(_frame(trail, each) for each in frames(trail, row, internals)),
        found.nodes,
        found.guards,
        None if found.exception == NOTHING else trail.texts[found.exception],
    )


def frames(trail: Trail, row: int, internals: bool = False) -> list[int]:
    """List the rows of the frames to show, innermost first; that of the row itself always."""
    return [each for each in trail.callers(row) if each == row or is_shown(trail, each, internals)]


def graph(trail: Trail, row: int) -> list[str]:
    """Give the operations of the graph up to an instruction, as lines of code."""
    found = trail.progress(row)
    lines = [trail.texts[each] for each in trail.graphs[found.graph][: found.nodes]] if found.nodes else []
    return sorted(lines, key=lambda line: " = input " not in line)  # torch makes an input when it is first used


def guards(trail: Trail, row: int) -> list[TracedGuard]:
    """Give the guards asked for up to an instruction, oldest first, then those on sizes, with the line that asked."""
    texts, found = trail.texts, trail.attempt(row).guards
    asked = [found[start : start + 3] for start in range(0, 3 * trail.progress(row).guards, 3)]
    shapes = [TracedGuard("SHAPE", texts[text], _asked_at(trail, by)) for text, by in trail.attempt(row).shapes if by < row]
    return [*(TracedGuard(texts[kind], texts[source], _asked_at(trail, by)) for kind, source, by in asked), *shapes]


def values_of(trail: Trail, row: int, name: str) -> list[tuple[int, str]]:
    """Give each value that a local variable of the innermost frame has had, with the instruction that gave it."""
    found: list[tuple[int, str]] = []
    frame, bindings = trail.row(row).frame, NOTHING
    last: int | None = None
    for number in range(row + 1):
        each = trail.row(number)
        if each.frame != frame:
            continue
        if each.bindings != bindings:
            bindings = each.bindings
            value = trail.locals(bindings).get(name)
            if value is not None and (not found or found[-1][1] != value):
                found.append((number if last is None else last, value))
        last = number
    return found


def file_of(trail: Trail, row: int) -> str:
    return trail.codes[trail.frame(row).code].original.co_filename


def line_of(trail: Trail, row: int) -> int:
    return trail.place(trail.row(row).place).line


def _asked_at(trail: Trail, row: int) -> Location | None:
    """Give the innermost shown line; guards without one are about torch's own state."""
    shown = [each for each in trail.callers(row) if is_shown(trail, each)] if row >= 0 else []
    return location_of(_place(trail, shown[0])) if shown else None


def _frame(trail: Trail, row: int) -> FrameState:
    found = trail.row(row)
    instruction = trail.place(found.place).instruction
    return frame_state(_place(trail, row), instruction, trail.stack(found.stack), trail.locals(found.bindings))


def _place(trail: Trail, row: int) -> RawFrame:
    code = trail.codes[trail.frame(row).code].original
    place = trail.place(trail.row(row).place)
    return RawFrame(code.co_filename, place.line, user_name(code.co_qualname), place.column, place.end_column)


_AROUND = 3  # lines of source before and after


def frame_state(place: RawFrame, instruction: str, stack: tuple[str, ...], variables: Mapping[str, str]) -> FrameState:
    location = named(location_of(place, owner_of_file(place.file)[1]))
    lines = linecache.getlines(location.file)
    first = max(1, location.line - _AROUND)
    source = tuple(line.rstrip("\n") for line in lines[first - 1 : location.line + _AROUND])
    return FrameState(location, instruction, stack, variables, source, first)
