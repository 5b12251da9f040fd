"""Stop conditions of the debugger: functions that take a row and return whether to stop there.

A row is the index of a recorded instruction (in a `Trail`); `start` is the row from which a debugger command continues.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from types import CodeType
from typing import NamedTuple

from dynx._bytecode import statements
from dynx._bytecode.trail import Code, Trail
from dynx._torch.tracing import line_hook
from dynx.comptime._target import Target
from dynx.comptime._trail_reader import instruction_at, is_shown, line_of

Stop = Callable[[int], bool]  # takes a row and returns whether to stop there


@dataclass(slots=True)
class Breakpoint:
    """A breakpoint of the debugger: a statement to stop at, and optionally a condition that has to be true."""

    number: int
    target: Target
    condition: CodeType | None = None
    text: str = ""  # of the condition
    hits: int = 0
    rows: set[int] = field(default_factory=set)  # the rows at which it was hit

    def __str__(self) -> str:
        condition = f" if {self.text}" if self.condition is not None else ""
        return f"{self.number}  {self.target.place}{condition}  {self.hits} hit{'' if self.hits == 1 else 's'}"


class FrameId(NamedTuple):
    """The identity of a traced frame, which stays the same when Dynamo restarts and traces the frame again."""

    compile_id: str
    ordinal: int  # among the frames of the attempt; 0 is the compiled function itself


class Stops:
    """The stop conditions of the debugger commands for one trail, the recorded instructions of a debugged call."""

    def __init__(self, trail: Trail, *, internals: bool = False) -> None:
        self._trail, self._internals = trail, internals
        self._beginnings = cache(lambda code: frozenset(_beginnings(trail.codes[code])))  # indices of instructions
        self._breakpoint_indices: dict[tuple[int, int], frozenset[int]] = {}  # by number of the breakpoint and code

    def begins(self, row: int) -> bool:
        """Return whether a recorded instruction begins a statement, in code that the debugger shows."""
        beginnings = self._beginnings(self._trail.frame(row).code)
        return self._index(row) in beginnings and is_shown(self._trail, row, internals=self._internals)

    def is_at(self, breakpoint: Breakpoint, row: int) -> bool:
        """Return whether a recorded instruction begins the statement of a breakpoint; ignores the breakpoint's condition."""
        code = self._trail.frame(row).code
        key = breakpoint.number, code
        if key not in self._breakpoint_indices:
            self._breakpoint_indices[key] = frozenset(breakpoint.target.begins(self._trail.codes[code]))
        return self._index(row) in self._breakpoint_indices[key]

    def step(self, start: int) -> Stop:
        """Return the stop condition of the debugger command `s`: the next statement, in any function."""
        return lambda row: row != start and self.begins(row)

    def instruction(self, start: int) -> Stop:
        """Return the stop condition of the debugger command `si`: the next instruction after the row `start`."""
        return lambda row: row != start and is_shown(self._trail, row, internals=self._internals)

    def next(self, start: int) -> Stop:
        """Return the stop condition of the debugger command `n`: the next statement of this function or of a caller.

        A resume function, which torch compiles as a frame of its own, counts as the function that it continues.
        """
        callers = self._trail.callers(start)
        frames = {self._frame(caller) for caller in callers}
        functions = {self._function(caller) for caller in callers}
        compile_id = self._frame(start).compile_id

        def stops(row: int) -> bool:
            if row == start or not self.begins(row):
                return False
            frame = self._frame(row)
            resumes = frame.compile_id != compile_id and frame.ordinal == 0 and self._function(row) in functions
            return frame in frames or resumes

        return stops

    def until(self, start: int, line: int | None) -> Stop:
        """Return the stop condition of command `until`: a statement after this line (or at or after `line`), or in a caller."""
        is_next = self.next(start)
        at_least = line if line is not None else line_of(self._trail, start) + 1
        return lambda row: is_next(row) and (not self._is_same_call(start, row) or line_of(self._trail, row) >= at_least)

    def is_return(self, row: int) -> bool:
        """Return whether a recorded instruction is one that returns from its function."""
        text = instruction_at(self._trail, row).text
        return text.startswith("RETURN_") and "GENERATOR" not in text

    def returning(self, start: int) -> Stop:
        """Return the stop condition of the debugger command `r`: this function is about to return."""
        return lambda row: row != start and self.is_return(row) and self._is_same_call(start, row)

    def _is_same_call(self, start: int, row: int) -> bool:
        """Return whether the instructions at two rows belong to the same call of a function, its resume functions included."""
        started, frame = self._frame(start), self._frame(row)
        is_resumed = started.compile_id != frame.compile_id and frame.ordinal == 0
        return started == frame or (is_resumed and self._function(start) is self._function(row))

    def _frame(self, row: int) -> FrameId:
        return FrameId(self._trail.attempt(row).compile_id, self._trail.frame(row).ordinal)

    def _function(self, row: int) -> CodeType:
        return self._trail.codes[self._trail.frame(row).code].original

    def _index(self, row: int) -> int:
        return instruction_at(self._trail, row).number


def _beginnings(code: Code) -> tuple[int, ...]:
    """Return the indices, in a code object, of the instructions at which its statements begin."""
    steps = line_hook.steps_of(code.original)
    lines = [step.line for step in steps if step.line is not None]
    indices: set[int] = set()
    for statement in statements.statements(code.original.co_filename) if lines else ():
        is_near = statement.first <= max(lines) and min(lines) <= statement.last
        if is_near and statements.can_hold(code.original, statement):
            indices.update(statements.beginnings(steps, statement))
    if not indices:  # code without source, or a lambda within a statement
        indices.update(_new_lines(steps))
    return line_hook.shifted(code, sorted(indices))


def _new_lines(steps: list[statements.Step]) -> list[int]:
    """Return the indices of the instructions at which the source line changes."""
    indices: list[int] = []
    previous: int | None = None
    for index, step in enumerate(steps):
        if step.line is not None and step.name not in statements.PRELUDE and step.line != previous:
            indices.append(index)
            previous = step.line
    return indices
