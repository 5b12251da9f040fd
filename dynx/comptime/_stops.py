"""Where the debugger stops: conditions on the rows of a trail, the same for what is traced now and for what was."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from types import CodeType

from dynx._bytecode import statements
from dynx._bytecode.trail import Code, Trail
from dynx._torch.tracing import line_hook
from dynx.comptime._target import Target
from dynx.comptime._trail_reader import is_shown, line_of

Stop = Callable[[int], bool]  # of the number of a row


@dataclass(slots=True)
class Breakpoint:
    """A place to stop at, always or where a condition holds; `held` are the rows at which it did."""

    number: int
    target: Target
    condition: CodeType | None = None
    text: str = ""
    hits: int = 0
    held: set[int] = field(default_factory=set)

    def __str__(self) -> str:
        condition = f" if {self.text}" if self.condition is not None else ""
        return f"{self.number}  {self.target.place}{condition}  {self.hits} hit{'' if self.hits == 1 else 's'}"


class Stops:
    """The ways to go through a trail."""

    def __init__(self, trail: Trail, internals: bool = False) -> None:
        self._trail, self._internals = trail, internals
        self._beginnings: dict[int, frozenset[int]] = {}
        self._places: dict[tuple[int, int], frozenset[int]] = {}

    def begins(self, row: int) -> bool:
        """Tell whether a statement begins, in code that is shown."""
        number = self._trail.frame(row).code
        if number not in self._beginnings:
            self._beginnings[number] = frozenset(_beginnings(self._trail.codes[number]))
        return self._index(row) in self._beginnings[number] and is_shown(self._trail, row, self._internals)

    def is_at(self, breakpoint: Breakpoint, row: int) -> bool:
        """Tell whether a row is at a breakpoint's place, whatever its condition."""
        key = breakpoint.number, self._trail.frame(row).code
        if key not in self._places:
            self._places[key] = frozenset(breakpoint.target.begins(self._trail.codes[key[1]]))
        return self._index(row) in self._places[key]

    def step(self, start: int) -> Stop:
        """Stop at the next statement, of whatever function."""
        return lambda row: row != start and self.begins(row)

    def instruction(self, start: int) -> Stop:
        return lambda row: row != start and is_shown(self._trail, row, self._internals)

    def next(self, start: int) -> Stop:
        """Stop at the next statement of the function or of one that called it, also when the rest of it is compiled anew."""
        frames = {self._frame(each) for each in self._trail.callers(start)}
        functions = {self._function(each) for each in self._trail.callers(start)}
        compile_id = self._frame(start)[0]

        def stops(row: int) -> bool:
            if row == start or not self.begins(row):
                return False
            frame = self._frame(row)
            return frame in frames or (frame[0] != compile_id and frame[1] == 0 and self._function(row) in functions)

        return stops

    def until(self, start: int, line: int | None) -> Stop:
        """Stop at the next statement behind this line, or at a given line or behind it; also when the function is left."""
        beyond = self.next(start)
        at_least = line if line is not None else line_of(self._trail, start) + 1
        return lambda row: beyond(row) and (not self._is_same(start, row) or line_of(self._trail, row) >= at_least)

    def is_return(self, row: int) -> bool:
        text = self._trail.place(self._trail.row(row).place).instruction
        return text.startswith("RETURN_") and "GENERATOR" not in text

    def returning(self, start: int) -> Stop:
        """Stop where the function is about to return."""
        return lambda row: row != start and self.is_return(row) and self._is_same(start, row)

    def _is_same(self, start: int, row: int) -> bool:
        """Tell whether a row is of the same call of a function, also of its rest after a graph break."""
        frame, other = self._frame(start), self._frame(row)
        return frame == other or (frame[0] != other[0] and other[1] == 0 and self._function(start) is self._function(row))

    def _frame(self, row: int) -> tuple[str, int]:
        """Give what stays the same when an attempt is started over."""
        return self._trail.attempt(row).compile_id, self._trail.frame(row).ordinal

    def _function(self, row: int) -> CodeType:
        return self._trail.codes[self._trail.frame(row).code].original

    def _index(self, row: int) -> int:
        return self._trail.place(self._trail.row(row).place).number


def _beginnings(code: Code) -> tuple[int, ...]:
    """Give the instructions of a function at which one of its statements begins, and its first."""
    steps = line_hook.steps_of(code.original)
    lines = [each.line for each in steps if each.line is not None]
    found: set[int] = set()
    for each in statements.statements(code.original.co_filename):
        if lines and each.first <= max(lines) and each.last >= min(lines) and statements.can_hold(code.original, each):
            found.update(statements.beginnings(steps, each))
    if not found:  # code without source, or a lambda within a statement
        found.update(_new_lines(steps))
    return line_hook.shifted(code, sorted(found))


def _new_lines(steps: list[statements.Step]) -> list[int]:
    found: list[int] = []
    before: int | None = None
    for index, each in enumerate(steps):
        if each.line is not None and each.name not in statements.PRELUDE and each.line != before:
            found.append(index)
            before = each.line
    return found
