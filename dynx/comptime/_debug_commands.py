"""The commands of the symbolic debugger."""

from __future__ import annotations

import cmd
import sys
from collections.abc import Iterator
from typing import Any, Protocol

from rich.console import Console
from rich.table import Table

from dynx._bytecode.statements import Statement, statements
from dynx._bytecode.trail import Trail
from dynx._torch.trace_log.log import Recorder
from dynx._torch.trace_log.peek import Held, evaluate
from dynx._torch.tracing import translator
from dynx.comptime import _trail_reader
from dynx.comptime._stops import Breakpoint, Stop, Stops
from dynx.comptime._target import Target, find_file, functions_in, resolve
from dynx.errors import DynxError, ProbeFailed
from dynx.report import _debugger as screen
from dynx.report._frame import source


class Session(Protocol):
    """The call that is debugged, as the commands see it."""

    trail: Trail
    recorder: Recorder
    internals: bool
    stops: Stops
    breakpoints: list[Breakpoint]
    breaks: dict[int, str]
    stop: Stop | None
    has_left: bool

    def leave(self) -> None:
        """Let the function go on without the debugger."""


_LONG = {
    "step": "s", "next": "n", "up": "u", "down": "d", "return": "r", "continue": "c", "cont": "c", "break": "b", "list": "l",
    "where": "w", "bt": "w", "quit": "q", "exit": "q", "print": "p", "unt": "until", "cl": "clear", "h": "help", "stepi": "si",
    "EOF": "q",
}  # fmt: skip


class Debugger(cmd.Cmd):
    """Asks what to do at each stop; `row` is what is looked at, which may lie before `present`."""

    prompt = "(dynx) "

    def __init__(self, session: Session, commands: list[str] | None) -> None:
        super().__init__()
        self._session, self._trail = session, session.trail
        self._scripted = commands is not None
        self._is_over = False
        self._tx: Any = None  # of the innermost frame, while it is asked
        self._row = self._present = 0
        self._level = 0  # of the frame looked at, among those shown
        self._known: list[int] | None = None
        self._numbered = 0  # breakpoints so far: a number is not used again
        self._console = Console(highlight=False)
        self.cmdqueue = commands or []

    def stopped(self, tx: Any, why: str = "") -> None:
        """Ask at an instruction that is about to be traced, or that breaks the graph."""
        self._present, self._tx = self._session.recorder.row_of(tx), tx
        self._go_to(self._present, why)
        try:
            self._converse()
        finally:
            self._tx = None

    def over(self, why: str) -> None:
        """Ask once more, when nothing is traced any longer."""
        history = _trail_reader.history(self._trail, self._session.internals)
        self._is_over = True
        if not history:
            self._say(screen.nothing_traced(only_internals=len(self._trail) > 0))
            return
        if self._scripted and not self.cmdqueue:
            return
        self._present = history[-1]
        self._row, self._level = self._present, 0
        compiles = sum(not each.is_superseded for each in self._trail.attempts)
        self._say(screen.over(why, compiles, len(history)))
        self._converse()

    def holds(self, breakpoint: Breakpoint, tx: Any, *, quietly: bool = False) -> bool:
        """Tell whether a breakpoint's condition holds here; one that cannot be asked stops."""
        if breakpoint.condition is None:
            return True
        try:
            return bool(evaluate(tx, translator.local_variables(tx), breakpoint.condition))
        except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever the condition raises
            if quietly:
                return True
            self._complain(f"{breakpoint.text}: {type(error).__name__}: {error}")
            return True

    # how lines are read

    def _converse(self) -> None:
        if not self._scripted or self.cmdqueue:
            self.cmdloop()
        elif not self._is_over:
            self._session.leave()

    def precmd(self, line: str) -> str:
        if self._scripted:
            self._console.print(f"{self.prompt}{line}", markup=False)
        word, _, rest = line.strip().partition(" ")
        return f"{_LONG.get(word, word)} {rest}".strip()

    def postcmd(self, stop: bool, line: str) -> bool:
        if not stop and self._scripted and not self.cmdqueue:
            self._session.leave()
            return True
        return stop

    def default(self, line: str) -> None:
        self._complain(f"there is no command {line.split()[0]}; help lists them")

    # going on

    def do_s(self, arg: str) -> bool:
        """s(tep): to the next statement, of whatever function"""
        return self._go_on(self._session.stops.step(self._row))

    def do_n(self, arg: str) -> bool:
        """n(ext): to the next statement of this function, or of the one that called it"""
        return self._go_on(self._session.stops.next(self._at()))

    def do_si(self, arg: str) -> bool:
        """si: to the next instruction"""
        return self._go_on(self._session.stops.instruction(self._row))

    def do_until(self, arg: str) -> bool:
        """until [LINE]: to a line behind this one, or to LINE or behind it, in this function"""
        if arg and not arg.isdigit():
            return self._complain(f"until needs a line number, not {arg}")
        return self._go_on(self._session.stops.until(self._at(), int(arg) if arg else None))

    def do_r(self, arg: str) -> bool:
        """r(eturn): to where this function returns; there, to where the one that called it does"""
        callers = self._trail.callers(self._at())
        returns = len(callers) > 1 and self._session.stops.is_return(self._at())
        return self._go_on(self._session.stops.returning(callers[1] if returns else self._at()))

    def do_c(self, arg: str) -> bool:
        """c(ontinue): to the next breakpoint or graph break"""
        return (self._is_over and self._row == self._present) or self._go_on(None)

    def do_q(self, arg: str) -> bool:
        """q(uit): leave the debugger; the function goes on and returns its result"""
        self._session.leave()
        return True

    # going back

    def do_back(self, arg: str) -> bool:
        """back [N]: N instructions back, over what was recorded; nothing runs again"""
        return self._move(arg, -1)

    def do_forward(self, arg: str) -> bool:
        """forward [N]: N instructions forward, to the present at most"""
        return self._move(arg, 1)

    def do_rs(self, arg: str) -> bool:
        """rs: back to the statement before, of whatever function"""
        return self._go_back(self._session.stops.step(self._row))

    def do_rn(self, arg: str) -> bool:
        """rn: back to the statement before, of this function or of the one that called it"""
        return self._go_back(self._session.stops.next(self._at()))

    # breakpoints

    def do_b(self, arg: str) -> bool:
        """b(reak) [LINE | FILE:LINE | FUNCTION [if CONDITION]]: stop there, where the condition holds; alone it lists them"""
        if not arg:
            self._say("\n".join(map(str, self._session.breakpoints)) or "no breakpoints")
            return False
        where, _, condition = f"{arg} ".partition(" if ")
        try:
            target = self._target(where.strip())
            code = compile(condition.strip(), "<condition>", "eval") if condition.strip() else None
        except DynxError as error:
            return self._complain(str(error))
        except SyntaxError as error:
            return self._complain(f"the condition {condition.strip()}: {error.msg}")
        self._numbered = number = self._numbered + 1
        self._session.breakpoints.append(Breakpoint(number, target, code, condition.strip()))
        self._say(f"breakpoint {number} at {target.place}")
        if code is not None and (self._row != self._present or self._is_over):
            self._say("a condition is asked while torch traces: for what lies in the past it is taken not to hold")
        return False

    def do_clear(self, arg: str) -> bool:
        """cl(ear) [NUMBER]: remove a breakpoint, or all"""
        kept = [each for each in self._session.breakpoints if arg and str(each.number) != arg]
        if arg and len(kept) == len(self._session.breakpoints):
            return self._complain(f"there is no breakpoint {arg}")
        self._session.breakpoints[:] = kept
        return False

    # looking

    def do_u(self, arg: str) -> bool:
        """u(p): look at the frame that called this one"""
        return self._look_at(self._level + 1)

    def do_d(self, arg: str) -> bool:
        """d(own): look at the frame that this one called"""
        return self._look_at(self._level - 1)

    def do_p(self, arg: str) -> bool:
        """p EXPRESSION: of locals, globals and what is known of tensors (x.shape, x.dtype); in the past, the name of a local"""
        state = self._state()
        known = state.frames[self._level].locals
        if not arg:
            self._complain("p needs an expression")
        elif arg in known:
            self._say(known[arg])
        elif self._row != self._present or self._is_over:
            self._complain(f"{arg}: no local here; in the past only the names of locals can be printed: {', '.join(known)}")
        else:
            try:
                self._say(repr(self._evaluate(arg)))
            except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever the expression raises
                self._complain(f"{type(error).__name__}: {error}")
        return False

    def do_stack(self, arg: str) -> bool:
        """stack: Python's value stack in this frame, the top last"""
        for each in self._state().frames[self._level].stack or ("the stack is empty",):
            self._say(each)
        return False

    def do_locals(self, arg: str) -> bool:
        """locals: the variables of this frame"""
        self._say(screen.table(self._state().frames[self._level].locals.items()) or "no locals")
        return False

    def do_changes(self, arg: str) -> bool:
        """changes NAME: each value that a local has had in this frame, with the line that gave it"""
        if not arg:
            return self._complain("changes needs the name of a local")
        found = _trail_reader.values_of(self._trail, self._at(), arg)
        rows = [(f"line {_trail_reader.line_of(self._trail, row)}", value) for row, value in found]
        self._say(screen.table(rows) if rows else f"{arg} has had no value here")
        return False

    def do_graph(self, arg: str) -> bool:
        """graph: the operations of the graph so far"""
        for line in _trail_reader.graph(self._trail, self._row) or ["the graph is empty"]:
            self._say(line)
        return False

    def do_guards(self, arg: str) -> bool:
        """guards: those asked for so far, with the line that asked first"""
        self._say(screen.guards(_trail_reader.guards(self._trail, self._row)))
        return False

    def do_w(self, arg: str) -> bool:
        """w(here): the symbolic frames, outermost first"""
        self._say(screen.frames(self._state(), self._level))
        return False

    def do_l(self, arg: str) -> bool:
        """l(ist): the source around the line"""
        self._say(source(self._state().frames[self._level]))
        return False

    def do_help(self, arg: str) -> bool:
        """h(elp): this list"""
        arg = _LONG.get(arg, arg)
        texts = [(name, getattr(self, f"do_{name}").__doc__) for name in _ORDER if arg in ("", name)]
        if not texts:
            return self._complain(f"there is no command {arg}; help lists them")
        self._say(screen.table([(text.partition(": ")[0], text.partition(": ")[2]) for _, text in texts]))
        return False

    # the places

    def _at(self) -> int:
        """Give the row of the frame that is looked at."""
        return _trail_reader.frames(self._trail, self._row, self._session.internals)[self._level]

    def _state(self) -> Any:
        return _trail_reader.state(self._trail, self._row, self._session.internals)

    def _go_on(self, stop: Stop | None) -> bool:
        """Go to the next row at which to stop: in the past over the rows, else by letting torch trace on."""
        if self._row == self._present and self._is_over:
            return self._complain("the trace is over: back and rs go through it, c and q leave")
        if self._row == self._present:
            self._session.stop = stop
            return True
        for row in self._rows_behind():
            is_met = any(row in each.held or self._passes(each, row) for each in self._session.breakpoints)
            if is_met or row in self._session.breaks or (stop is not None and stop(row)):
                return self._go_to(row)
        self._say(screen.end_of_history(backwards=False))
        return self._go_to(self._present)

    def _go_back(self, stop: Stop) -> bool:
        rows = [row for row in self._history() if row < self._row and stop(row)]
        return self._go_to(rows[-1]) if rows else self._complain("this is where the trace began")

    def _move(self, arg: str, direction: int) -> bool:
        if arg and not arg.isdigit():
            return self._complain(f"a number of instructions is needed, not {arg}")
        rows = self._history()
        place = rows.index(self._row) + direction * int(arg or 1)
        if not 0 <= place < len(rows):
            self._say(screen.end_of_history(backwards=direction < 0))
        return self._go_to(rows[max(0, min(place, len(rows) - 1))])

    def _history(self) -> list[int]:
        """List the rows to go through, the present last."""
        if self._known is None or self._known[-1] != self._present:
            rows = [row for row in _trail_reader.history(self._trail, self._session.internals) if row < self._present]
            self._known = [*rows, self._present]
        return self._known

    def _rows_behind(self) -> Iterator[int]:
        return (row for row in self._history() if row > self._row)

    def _passes(self, breakpoint: Breakpoint, row: int) -> bool:
        return breakpoint.condition is None and self._session.stops.is_at(breakpoint, row)

    def _go_to(self, row: int, why: str = "") -> bool:
        self._row, self._level = row, 0
        why = why or self._session.breaks.get(row, "")
        ago = 0 if row == self._present else len(self._history()) - 1 - self._history().index(row)
        self._say(screen.stop(self._state(), 0, why, ago, exact=not self._session.stops.begins(row) or bool(why)))
        return False

    def _look_at(self, level: int) -> bool:
        state = self._state()
        if not 0 <= level < len(state.frames):
            return self._complain("this is the innermost frame" if level < 0 else "this is the outermost frame")
        self._level = level
        self._say(screen.stop(state, level, "", 0, exact=level > 0))
        return False

    def _target(self, where: str) -> Target:
        """Find what a person means by a place. Raises ProbeFailed."""
        if where.isdigit():
            file, line = _trail_reader.file_of(self._trail, self._at()), int(where)
            if not statements(file):  # no source to find statements in
                return Target(file, None, Statement(line, line))
            return resolve(f"{file}:{line}", None)
        file, _, name = where.rpartition(":")
        if file and name.isdigit():
            return resolve(where, None)
        if file and file.endswith(".py"):
            found = self._function(name, file)
        elif file:
            if file not in sys.modules:  # to import it here would run it
                raise ProbeFailed(f"no module {file} is loaded\n  give LINE, FILE:LINE, a function or package.module:function")
            return resolve(where, None)
        else:
            found = self._function(name, _trail_reader.file_of(self._trail, self._at()))
        if found is None:
            raise ProbeFailed(
                f"there is no function {where} here\n  give LINE, FILE:LINE, a function or package.module:function"
            )
        return resolve(found, None)

    def _function(self, name: str, file: str) -> Any:
        """Find a function by the name it has in this frame, or in its file."""
        if not all(part.isidentifier() for part in name.split(".")):
            return None
        try:
            found = self._evaluate(name)
            return found._real if type(found) is Held else found
        except Exception:  # noqa: BLE001 - no such name
            names = (name, *((name.rpartition(".")[2],) if "." not in name else ()))
            return next((each for each in functions_in(find_file(file), None) if each.__qualname__ in names), None)

    def _evaluate(self, expression: str) -> Any:
        """Evaluate in the frame that is looked at; raises DynxError where it is no longer traced."""
        row_of = self._session.recorder.row_of
        tx = next((each for each in translator.chain(self._tx) if row_of(each) == self._at()), None)
        if tx is None:
            raise DynxError("this frame is not traced any longer; its locals can be printed by name")
        return evaluate(tx, translator.local_variables(tx), expression)

    def _say(self, what: Any) -> None:
        self._console.print(what, markup=False, soft_wrap=not isinstance(what, Table))

    def _complain(self, text: str) -> bool:
        self._say(f"*** {text}")
        return False


_ORDER = (
    "s", "n", "si", "until", "r", "c", "back", "forward", "rs", "rn", "b", "clear", "w", "u", "d", "l", "p", "locals", "stack",
    "changes", "graph", "guards", "help", "q",
)  # fmt: skip
