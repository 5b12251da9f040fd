"""Read a trail: the state before an instruction, and the instructions that the debugger shows.

A *row* is the number of a recorded instruction; rows are numbered in the order in which they were traced.
"""

from __future__ import annotations

import linecache
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from dynx._bytecode.trail import NOTHING, Attempt, Instruction, Trail
from dynx._torch.compilation.frame import user_name
from dynx._torch.tracing.stack import RawFrame
from dynx._trace.user_location import is_visible, location_of, named, owner_of_file
from dynx.records import FrameState, Location, TraceState
from dynx.records.comptime import TracedGuard


class RecordedValue(NamedTuple):
    """A value that a local variable has had."""

    row: int  # of the instruction that assigned it
    text: str


class _RecordedGuard(NamedTuple):
    """One guard as an attempt stores it: three integers in a row."""

    kind: int  # text
    source: int  # text
    row: int  # of the instruction that requested it


def is_shown(trail: Trail, row: int, *, internals: bool = False) -> bool:
    """Return whether an instruction is shown: by default those of the user's code and of libraries.

    Code of torch and of the standard library is shown with `internals`, and so is the prologue of a resume function, which
    torch generates to get to the instruction after the graph break.
    """
    code = trail.codes[trail.frame(row).code]
    if code.resumes_at is not None and instruction_at(trail, row).number < code.resumes_at:
        return internals
    return internals or is_visible(code.original.co_filename)


def history(trail: Trail, *, internals: bool = False) -> list[int]:
    """Return the rows that are shown, in order, without those of attempts that a later attempt replaced."""
    return [
        row for row in range(len(trail)) if not trail.attempt(row).is_superseded and is_shown(trail, row, internals=internals)
    ]


def state(trail: Trail, row: int, *, internals: bool = False) -> TraceState:
    """Return the state of the tracer before an instruction."""
    progress = trail.progress(row)
    attempt = trail.attempt(row)
    return TraceState(
        row,
        attempt.compile_id,
        attempt.nth,
        tuple(_frame(trail, frame_row) for frame_row in frames(trail, row, internals=internals)),
        progress.nodes,
        progress.guards,
        None if progress.exception == NOTHING else trail.texts[progress.exception],
    )


def frames(trail: Trail, row: int, *, internals: bool = False) -> list[int]:
    """Return the rows at which the frames that are shown stand, innermost first; `row` itself is always shown."""
    return [caller for caller in trail.callers(row) if caller == row or is_shown(trail, caller, internals=internals)]


def graph(trail: Trail, row: int) -> list[str]:
    """Return the operations of the graph before an instruction, as lines of code."""
    progress = trail.progress(row)
    lines = [trail.texts[text] for text in trail.graphs[progress.graph][: progress.nodes]] if progress.nodes else []
    return sorted(lines, key=lambda line: " = input " not in line)  # torch adds an input when it is first used


def guards(trail: Trail, row: int) -> list[TracedGuard]:
    """Return the guards requested before an instruction, oldest first, then the shape guards; each with its line."""
    attempt, texts = trail.attempt(row), trail.texts
    recorded = _recorded_guards(attempt, trail.progress(row).guards)
    shapes = [TracedGuard("SHAPE", texts[text], _requested_at(trail, by)) for text, by in attempt.shapes if by < row]
    return [
        *(TracedGuard(texts[guard.kind], texts[guard.source], _requested_at(trail, guard.row)) for guard in recorded),
        *shapes,
    ]


def values_of(trail: Trail, row: int, name: str) -> list[RecordedValue]:
    """Return the values that a local variable of the innermost frame has had before an instruction, oldest first."""
    values: list[RecordedValue] = []
    frame, bindings = trail.row(row).frame, NOTHING
    previous: int | None = None  # row of the frame
    for number in range(row + 1):
        recorded = trail.row(number)
        if recorded.frame != frame:
            continue
        if recorded.bindings != bindings:
            bindings = recorded.bindings
            text = trail.locals(bindings).get(name)
            if text is not None and (not values or values[-1].text != text):
                values.append(RecordedValue(number if previous is None else previous, text))
        previous = number
    return values


def file_of(trail: Trail, row: int) -> str:
    """Return the file of an instruction."""
    return trail.codes[trail.frame(row).code].original.co_filename


def line_of(trail: Trail, row: int) -> int:
    """Return the line of an instruction."""
    return instruction_at(trail, row).line


def instruction_at(trail: Trail, row: int) -> Instruction:
    """Return the instruction of a row."""
    return trail.instruction(trail.row(row).instruction)


def _recorded_guards(attempt: Attempt, count: int) -> Iterator[_RecordedGuard]:
    """Yield the first `count` guards of an attempt."""
    width = len(_RecordedGuard._fields)
    for start in range(0, width * count, width):
        yield _RecordedGuard(*attempt.guards[start : start + width])


def _requested_at(trail: Trail, row: int) -> Location | None:
    """Return the innermost shown line at a row; None for a guard on torch's global state, which no line requested."""
    shown = [caller for caller in trail.callers(row) if is_shown(trail, caller)] if row >= 0 else []
    return location_of(_raw_frame(trail, shown[0])) if shown else None


def _frame(trail: Trail, row: int) -> FrameState:
    recorded = trail.row(row)
    instruction = instruction_at(trail, row).text
    return frame_state(_raw_frame(trail, row), instruction, trail.stack(recorded.stack), trail.locals(recorded.bindings))


def _raw_frame(trail: Trail, row: int) -> RawFrame:
    code = trail.codes[trail.frame(row).code].original
    instruction = instruction_at(trail, row)
    return RawFrame(code.co_filename, instruction.line, user_name(code.co_qualname), instruction.column, instruction.end_column)


_CONTEXT_LINES = 3  # lines of source before and after


def frame_state(frame: RawFrame, instruction: str, stack: tuple[str, ...], variables: Mapping[str, str]) -> FrameState:
    """Return the record of a frame, with the source around its line."""
    _, library = owner_of_file(frame.file)
    location = named(location_of(frame, library))
    lines = linecache.getlines(location.file)
    first = max(1, location.line - _CONTEXT_LINES)
    source = tuple(line.rstrip("\n") for line in lines[first - 1 : location.line + _CONTEXT_LINES])
    return FrameState(location, instruction, stack, variables, source, first)
