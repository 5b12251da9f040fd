"""What the tracer knew before each instruction, packed small: going back reads it, nothing runs again. No torch here.

Every instruction is one row of integers. Texts are kept once. Value stacks and locals are linked lists that share what did not
change: an instruction that pushes a value adds one link, one that assigns a variable adds one binding.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from struct import Struct
from types import CodeType
from typing import NamedTuple

NOTHING = -1


class Place(NamedTuple):
    """One instruction of a code object; lines and columns are those of the source."""

    number: int  # among those of its code
    instruction: str  # "CALL 1"
    line: int
    column: int | None
    end_column: int | None


class Code(NamedTuple):
    """A code object as it is traced."""

    code: CodeType
    length: int  # in instructions
    original: CodeType  # as the user wrote it: differs in the rest of a function after a graph break
    resumes_at: int | None  # index of the instruction at which that goes on


@dataclass(slots=True)
class Attempt:
    """One attempt at one compilation."""

    number: int  # among all attempts
    compile_id: str
    nth: int  # attempt at this compilation, from 0
    replays: int  # rows at its beginning that repeat those of the attempt before
    rows: int = 0
    frames: int = 0
    shape_guards: int = 0
    changes: int = 0  # operations and guards that may have changed what is shown of tensors and symbolic sizes
    shapes: list[tuple[int, int]] = field(default_factory=list)  # of each shape guard its text, and the row that asked
    is_superseded: bool = False  # by a later attempt
    guards: array[int] = field(default_factory=lambda: array("i"))  # of each text of its kind, of its source, row that asked


class Frame(NamedTuple):
    """One symbolic frame: the compiled function itself, or a function inlined once."""

    code: int
    attempt: int
    ordinal: int  # among the frames of its attempt; the same when the attempt is started over


class Row(NamedTuple):
    """One instruction about to be traced."""

    frame: int
    place: int
    caller: int  # row of the instruction that is calling this frame; NOTHING in the compiled function
    stack: int  # top link
    bindings: int  # newest binding
    progress: int


class Progress(NamedTuple):
    """How far a trace has come."""

    graph: int
    nodes: int  # of that graph so far
    guards: int  # of the attempt so far
    exception: int  # text


_WIDTH = len(Row._fields)
pack_row = Struct(f"{_WIDTH}i").pack  # of a row's values in order; a row is added to a trail so, it is the quickest


class Trail:
    """Rows in the order they were traced, and the tables they point into."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.codes: list[Code] = []
        self.attempts: list[Attempt] = []
        self.graphs: list[array[int]] = []  # of each the texts of its nodes
        self._numbers: dict[str, int] = {}
        self._rows = array("i")
        self.add = self._rows.frombytes  # of a packed row
        self._frames, self._places, self._progress = array("i"), array("i"), array("i")
        self._below, self._values = array("i"), array("i")
        self._before, self._names, self._bound = array("i"), array("i"), array("i")

    def __len__(self) -> int:
        return len(self._rows) // _WIDTH

    def begin(self, compile_id: str, nth: int) -> Attempt:
        """Begin an attempt."""
        before = next((each for each in reversed(self.attempts) if (each.compile_id, each.nth) == (compile_id, nth - 1)), None)
        if before is not None:
            before.is_superseded = True
        attempt = Attempt(len(self.attempts), compile_id, nth, 0 if before is None else before.rows)
        self.attempts.append(attempt)
        return attempt

    def attempt(self, number: int) -> Attempt:
        """Give the attempt of a row."""
        return self.attempts[self.frame(number).attempt]

    def text(self, text: str) -> int:
        """Give the number of a text."""
        number = self._numbers.get(text)
        if number is None:
            number = self._numbers[text] = len(self.texts)
            self.texts.append(text)
        return number

    def add_place(self, number: int, instruction: str, line: int, column: int | None, end_column: int | None) -> int:
        """Add an instruction of a code object; gives its number."""
        start, end = NOTHING if column is None else column, NOTHING if end_column is None else end_column
        self._places.extend((number, self.text(instruction), line, start, end))
        return len(self._places) // len(Place._fields) - 1

    def add_frame(self, code: int, attempt: int, ordinal: int) -> int:
        """Add a frame; gives its number."""
        self._frames.extend((code, attempt, ordinal))
        return len(self._frames) // len(Frame._fields) - 1

    def add_progress(self, progress: tuple[int, int, int, int]) -> int:
        """Add how far a trace has come, the values of `Progress` in order; gives its number."""
        self._progress.extend(progress)
        return len(self._progress) // len(progress) - 1

    def push(self, below: int, text: int) -> int:
        """Add a value on top of a stack; gives the new top."""
        self._below.append(below)
        self._values.append(text)
        return len(self._below) - 1

    def bind(self, before: int, name: int, text: int) -> int:
        """Add an assignment, or with NOTHING for a text a deletion; gives the newest binding."""
        self._before.append(before)
        self._names.append(name)
        self._bound.append(text)
        return len(self._before) - 1

    def row(self, number: int) -> Row:
        return Row(*self._rows[number * _WIDTH : (number + 1) * _WIDTH])

    def place(self, number: int) -> Place:
        width = len(Place._fields)
        at, text, line, column, end = self._places[number * width : (number + 1) * width]
        return Place(at, self.texts[text], line, *(None if each == NOTHING else each for each in (column, end)))

    def frame(self, number: int) -> Frame:
        """Give the frame of a row."""
        at = self._rows[number * _WIDTH] * len(Frame._fields)
        return Frame(*self._frames[at : at + len(Frame._fields)])

    def progress(self, number: int) -> Progress:
        """Give how far the trace had come at a row."""
        at = self._rows[(number + 1) * _WIDTH - 1] * len(Progress._fields)
        return Progress(*self._progress[at : at + len(Progress._fields)])

    def callers(self, number: int) -> list[int]:
        """Give a row and those of the instructions that called its frame, innermost first."""
        found = []
        while number != NOTHING:
            found.append(number)
            number = self.row(number).caller
        return found

    def stack(self, top: int) -> tuple[str, ...]:
        """Give the texts of a value stack, the top last."""
        found = []
        while top != NOTHING:
            found.append(self.texts[self._values[top]])
            top = self._below[top]
        return tuple(found[::-1])

    def locals(self, newest: int) -> dict[str, str]:
        """Give the variables that have a value, in the order they were first assigned."""
        found: dict[int, int] = {}
        while newest != NOTHING:
            name = self._names[newest]
            found[name] = found.pop(name, self._bound[newest])  # met before: a newer value, but an earlier place
            newest = self._before[newest]
        return {self.texts[name]: self.texts[value] for name, value in reversed(found.items()) if value != NOTHING}
