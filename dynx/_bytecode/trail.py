"""`Trail`: a compact log of Dynamo's state before each traced instruction, so that a debugger can step back without retracing.

Each traced instruction is one row of integers, which are indices into tables. Each text is stored once. Value stacks and locals
are linked lists that share their unchanged part. A *link* is one value on a stack, and refers to the link below it; pushing a
value adds one link. A *binding* is one assignment of a local variable, and refers to the binding before it. This module does
not import torch.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from struct import Struct
from types import CodeType
from typing import NamedTuple

NOTHING = -1  # stands for None in a table of integers


class Instruction(NamedTuple):
    """One instruction of a code object, with its line and columns in the source."""

    number: int  # its index in the code
    text: str  # "CALL 1"
    line: int
    column: int | None
    end_column: int | None


class Code(NamedTuple):
    """A code object that Dynamo traced."""

    code: CodeType
    length: int  # in instructions
    original: CodeType  # code of the user's function; differs from `code` for a resume function
    resumes_at: int | None  # for a resume function: the index of the instruction at which it resumes


@dataclass(slots=True)
class Attempt:
    """One pass of Dynamo over a frame; a compilation takes several if Dynamo restarts, for example after a graph break."""

    number: int  # among all attempts
    compile_id: str
    nth: int  # its index among the attempts of this compilation
    replays: int  # number of rows at its beginning that repeat those of the previous attempt
    rows: int = 0
    frames: int = 0
    shapes: list[tuple[int, int]] = field(default_factory=list)  # for each shape guard: its text, and the row that requested it
    is_superseded: bool = False  # whether Dynamo restarted the compilation after it
    guards: array[int] = field(default_factory=lambda: array("i"))  # for each guard: kind, source, and row that requested it


class Frame(NamedTuple):
    """One frame that Dynamo traced: that of the compiled function, or of a call that Dynamo inlined."""

    code: int
    attempt: int
    ordinal: int  # among the frames of its attempt; the same in a restarted attempt


class Row(NamedTuple):
    """The state of Dynamo before one traced instruction, as indices into the tables of a `Trail`."""

    frame: int
    instruction: int
    caller: int  # row of the instruction that is calling this frame; NOTHING in the compiled function
    stack: int  # the link at the top of the value stack
    bindings: int  # the newest binding
    progress: int


class Progress(NamedTuple):
    """The progress of tracing before an instruction: current graph, nodes and guards so far, exception being handled."""

    graph: int  # index of the graph
    nodes: int  # of that graph so far
    guards: int  # of the attempt so far
    exception: int  # index of the text of the exception that is being handled, NOTHING for none


_WIDTH = len(Row._fields)
_FRAME, _PROGRESS = Row._fields.index("frame"), Row._fields.index("progress")
pack_row = Struct(f"{_WIDTH}i").pack  # packs the values of a row, in order: the fastest way to add a row to a trail


class Trail:
    """A log of traced instructions: one `Row` each, in the order of tracing, and the tables that rows refer to by index."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.codes: list[Code] = []
        self.attempts: list[Attempt] = []
        self.graphs: list[array[int]] = []  # for each graph: the texts of its nodes
        self._numbers: dict[str, int] = {}
        self._rows = array("i")
        self.add = self._rows.frombytes  # takes a packed row
        self._frames, self._instructions, self._progress = array("i"), array("i"), array("i")
        self.below, self.values = array("i"), array("i")  # of the links of value stacks
        self._before, self._names, self._bound = array("i"), array("i"), array("i")

    def __len__(self) -> int:
        return len(self._rows) // _WIDTH

    def begin(self, compile_id: str, nth: int) -> Attempt:
        """Add and return tracing pass `nth` (from 0) of a compilation; mark the previous pass as superseded by a restart."""
        same = (attempt for attempt in reversed(self.attempts) if attempt.compile_id == compile_id)
        previous = next((attempt for attempt in same if attempt.nth == nth - 1), None)
        if previous is not None:
            previous.is_superseded = True
        attempt = Attempt(len(self.attempts), compile_id, nth, 0 if previous is None else previous.rows)
        self.attempts.append(attempt)
        return attempt

    def attempt(self, number: int) -> Attempt:
        """Return the tracing pass of Dynamo (`Attempt`) in which the instruction in row `number` of the log was traced."""
        return self.attempts[self.frame(number).attempt]

    def text(self, text: str) -> int:
        """Return the index of a string in the table of texts; add the string if it is new."""
        number = self._numbers.get(text)
        if number is None:
            number = self._numbers[text] = len(self.texts)
            self.texts.append(text)
        return number

    def add_instruction(self, index: int, text: str, line: int, column: int | None, end_column: int | None) -> int:
        """Add an instruction to the table of instructions and return its index there."""
        start, end = NOTHING if column is None else column, NOTHING if end_column is None else end_column
        self._instructions.extend((index, self.text(text), line, start, end))
        return len(self._instructions) // len(Instruction._fields) - 1

    def add_frame(self, code: int, attempt: int, ordinal: int) -> int:
        """Add the three values of a `Frame` to the table of frames and return their index there."""
        self._frames.extend((code, attempt, ordinal))
        return len(self._frames) // len(Frame._fields) - 1

    def add_progress(self, progress: tuple[int, int, int, int]) -> int:
        """Add the four values of a `Progress` to the table of progresses and return their index there."""
        self._progress.extend(progress)
        return len(self._progress) // len(progress) - 1

    def bind(self, before: int, name: int, text: int) -> int:
        """Add an assignment of a local variable and return its index; `before` is the index of the assignment that precedes it.

        `name` and `text` are indices of stored strings: the variable's name and its value; `text` is NOTHING for a deletion.
        """
        self._before.append(before)
        self._names.append(name)
        self._bound.append(text)
        return len(self._before) - 1

    def row(self, number: int) -> Row:
        return Row(*self._rows[number * _WIDTH : (number + 1) * _WIDTH])

    def instruction(self, number: int) -> Instruction:
        width = len(Instruction._fields)
        index, text, line, column, end = self._instructions[number * width : (number + 1) * width]
        return Instruction(index, self.texts[text], line, *(None if offset == NOTHING else offset for offset in (column, end)))

    def frame(self, number: int) -> Frame:
        """Return the frame to which the instruction in row `number` of the log belongs."""
        start = self._rows[number * _WIDTH + _FRAME] * len(Frame._fields)
        return Frame(*self._frames[start : start + len(Frame._fields)])

    def progress(self, number: int) -> Progress:
        """Return the `Progress` before the instruction in row `number` of the log."""
        start = self._rows[number * _WIDTH + _PROGRESS] * len(Progress._fields)
        return Progress(*self._progress[start : start + len(Progress._fields)])

    def callers(self, number: int) -> list[int]:
        """Return the call stack of row `number`: this number, then the rows of the calling instructions, innermost first."""
        rows = []
        while number != NOTHING:
            rows.append(number)
            number = self.row(number).caller
        return rows

    def stack(self, top: int) -> tuple[str, ...]:
        """Return the values of a value stack as text, from bottom to top; `top` is the index of its top link (`Row.stack`)."""
        values = []
        while top != NOTHING:
            values.append(self.texts[self.values[top]])
            top = self.below[top]
        return tuple(values[::-1])

    def locals(self, newest: int) -> dict[str, str]:
        """Return names and values of the locals after the assignment with index `newest`, ordered by first assignment."""
        values: dict[int, int] = {}  # by name, in the reverse of that order
        while newest != NOTHING:
            name = self._names[newest]
            values[name] = values.pop(name, self._bound[newest])  # keep the newer value, but move it to the older assignment
            newest = self._before[newest]
        return {self.texts[name]: self.texts[value] for name, value in reversed(values.items()) if value != NOTHING}
