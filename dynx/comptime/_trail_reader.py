"""Read a trail, the debugger's recording of traced instructions: the state before each, and which instructions to show.

A *row* is the index of a recorded instruction; rows are numbered in the order in which the instructions were traced.
"""

from __future__ import annotations

from collections.abc import Mapping

from dynx._bytecode.source import lines_with
from dynx._bytecode.trail import NOTHING, Instruction, Trail
from dynx._reading.user_location import is_visible, location_of, named, owner_of_file
from dynx._torch.compilation.frame import user_name
from dynx._torch.tracing.stack import RawFrame
from dynx.records import FrameState, Location, TraceState
from dynx.records.comptime import TracedGuard


def is_shown(trail: Trail, row: int, *, internals: bool = False) -> bool:
    """Return whether the debugger shows a recorded instruction; by default, if it is in the user's code or a library's.

    Code of torch and of the standard library is shown with `internals`, and so is the prologue of a resume function, which
    torch generates to get to the instruction after the graph break.
    """
    code = trail.codes[trail.frame(row).code]
    if code.resumes_at is not None and instruction_at(trail, row).number < code.resumes_at:
        return internals
    return internals or is_visible(code.original.co_filename)


def history(trail: Trail, *, internals: bool = False) -> list[int]:
    """Return the rows of the instructions that the debugger shows, in order, without those of attempts that were restarted."""
    return [
        row for row in range(len(trail)) if not trail.attempt(row).is_superseded and is_shown(trail, row, internals=internals)
    ]


def state(trail: Trail, row: int, *, internals: bool = False) -> TraceState:
    """Return Dynamo's state before a recorded instruction: frames, numbers of nodes and guards, current exception."""
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
    """Return the call stack at a recorded instruction: `row` itself, then the rows of its callers, without hidden frames."""
    return [caller for caller in trail.callers(row) if caller == row or is_shown(trail, caller, internals=internals)]


def graph(trail: Trail, row: int) -> list[str]:
    """Return the operations that the FX graph had before a recorded instruction, as lines of code."""
    progress = trail.progress(row)
    lines = [trail.texts[text] for text in trail.graphs[progress.graph][: progress.nodes]] if progress.nodes else []
    return sorted(lines, key=lambda line: " = input " not in line)  # torch adds an input when it is first used


def guards(trail: Trail, row: int) -> list[TracedGuard]:
    """Return the guards installed before a recorded instruction, oldest first, then the shape guards."""
    attempt, texts = trail.attempt(row), trail.texts
    numbers = attempt.guards[: 3 * trail.progress(row).guards]
    recorded = zip(numbers[::3], numbers[1::3], numbers[2::3], strict=True)
    return [
        *(TracedGuard(texts[kind], texts[source], _requested_at(trail, by)) for kind, source, by in recorded),
        *(TracedGuard("SHAPE", texts[text], _requested_at(trail, by)) for text, by in attempt.shapes if by < row),
    ]


def values_of(trail: Trail, row: int, name: str) -> list[tuple[int, str]]:
    """Return the values that a local variable has had in the frame of a recorded instruction so far, oldest first.

    Each is a pair: the row (index) of the instruction that assigned the value, and the value as text.
    """
    values: list[tuple[int, str]] = []
    frame, bindings = trail.row(row).frame, NOTHING
    previous: int | None = None  # row of the frame
    for number in range(row + 1):
        recorded = trail.row(number)
        if recorded.frame != frame:
            continue
        if recorded.bindings != bindings:
            bindings = recorded.bindings
            text = trail.locals(bindings).get(name)
            if text is not None and (not values or values[-1][1] != text):
                values.append((number if previous is None else previous, text))
        previous = number
    return values


def file_of(trail: Trail, row: int) -> str:
    """Return the source file of a recorded instruction."""
    return trail.codes[trail.frame(row).code].original.co_filename


def line_of(trail: Trail, row: int) -> int:
    """Return the source line of a recorded instruction."""
    return instruction_at(trail, row).line


def instruction_at(trail: Trail, row: int) -> Instruction:
    """Return the bytecode instruction recorded at a row."""
    return trail.instruction(trail.row(row).instruction)


def _requested_at(trail: Trail, row: int) -> Location | None:
    """Return the innermost shown line that required a guard; None for a guard on global state, which no line required."""
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
    """Return the record of a traced frame, with the source lines around its current line."""
    _, library = owner_of_file(frame.file)
    location = named(location_of(frame, library))
    lines = lines_with(location.file, location.line, location.function)
    first = max(1, location.line - _CONTEXT_LINES)
    source = tuple(line.rstrip("\n") for line in lines[first - 1 : location.line + _CONTEXT_LINES])
    return FrameState(location, instruction, stack, variables, source, first)
