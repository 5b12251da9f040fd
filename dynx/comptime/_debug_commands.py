"""The commands of the debugger `dynx.comptime.debug`, such as `s`, `back` and `locals`."""

from __future__ import annotations

import cmd
import sys
from typing import Any, NoReturn

from rich.console import Console, RenderableType

from dynx._bytecode.statements import Statement, statements
from dynx._bytecode.trail import NOTHING
from dynx._torch.trace_log.log import Recorder
from dynx._torch.trace_log.peek import Held, evaluate
from dynx._torch.tracing import translator
from dynx.comptime import _trail_reader
from dynx.comptime._stops import Breakpoint, Stop, Stops
from dynx.comptime._target import Target, find_file, functions_in, resolve
from dynx.errors import DynxError, ProbeFailed
from dynx.records import TraceState
from dynx.report._comptime import debugger as screen
from dynx.report._comptime.frame import source

_ALIASES = {
    "step": "s", "next": "n", "up": "u", "down": "d", "return": "r", "continue": "c", "cont": "c", "break": "b", "list": "l",
    "where": "w", "bt": "w", "quit": "q", "exit": "q", "print": "p", "unt": "until", "cl": "clear", "h": "help", "stepi": "si",
    "EOF": "q",
}  # fmt: skip

# usage of each command, in the order of `help`, which prints the docstring of the command's method beside it
_USAGE = {
    "s": "s(tep)", "n": "n(ext)", "si": "si", "until": "until [LINE]", "r": "r(eturn)", "c": "c(ontinue)",
    "back": "back [N]", "forward": "forward [N]", "rs": "rs", "rn": "rn",
    "b": "b(reak) [LINE | FILE:LINE | FUNCTION [if CONDITION]]", "clear": "cl(ear) [NUMBER]",
    "w": "w(here)", "u": "u(p)", "d": "d(own)", "l": "l(ist)",
    "p": "p EXPRESSION", "locals": "locals", "stack": "stack", "changes": "changes NAME", "graph": "graph", "guards": "guards",
    "help": "h(elp) [COMMAND]", "q": "q(uit)",
}  # fmt: skip


class Debugger(cmd.Cmd):
    """The prompt of the debugger: reads and runs the user's commands whenever the trace is stopped.

    A row is the index of a recorded instruction. `_present` is the newest row, `_row` is the row that the user inspects. A
    method `do_x` is the command `x`; as `cmd.Cmd` requires, it returns whether to stop prompting.

    `stop` is the stop condition of the last command. `breaks` maps the row of each graph break to its reason. Once `has_left`
    is True, the debugged function continues without further stops.
    """

    prompt = "(dynx) "

    def __init__(self, recorder: Recorder, commands: list[str] | None, *, internals: bool) -> None:
        super().__init__()
        self._recorder, self._trail, self._internals = recorder, recorder.trail, internals
        self.stops = Stops(recorder.trail, internals=internals)
        self.stop: Stop | None = self.stops.step(NOTHING)
        self.breakpoints: list[Breakpoint] = []
        self.breaks: dict[int, str] = {}
        self.has_left = False
        self._scripted = commands is not None
        self._has_ended = False  # nothing is traced any longer
        self._tx: Any = None  # translator of the innermost frame, while the trace is stopped
        self._row = self._present = 0
        self._level = 0  # of the selected frame, among those shown; 0 is the innermost
        self._cached_history: list[int] | None = None
        self._last_number = 0  # of a breakpoint: numbers are not reused
        self._console = Console(highlight=False)
        self.cmdqueue = commands or []

    def stop_at(self, tx: Any, reason: str = "") -> None:
        """Show where the trace stands, and prompt for commands; `reason` is why the instruction breaks the graph, if any."""
        self._present, self._tx = self._recorder.row_of(tx), tx
        self._go_to(self._present, reason)
        try:
            self._prompt()
        finally:
            self._tx = None

    def end(self, reason: str) -> None:
        """Print `reason` and prompt once more after the trace, unless nothing was traced or the script has no commands left."""
        history = _trail_reader.history(self._trail, internals=self._internals)
        self._has_ended = True
        if not history:
            self._say(screen.nothing_traced(only_internals=len(self._trail) > 0))
            return
        if self._scripted and not self.cmdqueue:
            return
        self._present = history[-1]
        self._row, self._level = self._present, 0
        compiles = sum(not attempt.is_superseded for attempt in self._trail.attempts)
        self._say(screen.over(reason, compiles, len(history)))
        self._prompt()

    def condition_holds(self, breakpoint: Breakpoint, tx: Any, *, quietly: bool = False) -> bool:
        """Return whether a breakpoint's condition is true; if it raises, return True, and print the error unless `quietly`."""
        if breakpoint.condition is None:
            return True
        try:
            return bool(evaluate(tx, translator.local_variables(tx), breakpoint.condition))
        except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever the condition raises
            if not quietly:
                self._complain(f"{breakpoint.text}: {type(error).__name__}: {error}")
            return True

    def _prompt(self) -> None:
        if not self._scripted or self.cmdqueue:
            self.cmdloop()
        elif not self._has_ended:
            self.has_left = True

    def precmd(self, line: str) -> str:
        """Replace an alias by the name of its command; echo the commands of a script."""
        if self._scripted:
            self._console.print(f"{self.prompt}{line}", markup=False)
        word, _, rest = line.strip().partition(" ")
        return f"{_ALIASES.get(word, word)} {rest}".strip()

    def postcmd(self, stop: object, line: str) -> bool:
        """Leave the debugger after the last command of a script."""
        if not stop and self._scripted and not self.cmdqueue:
            self.has_left = True
            return True
        return bool(stop)

    def default(self, line: str) -> None:
        """Report an unknown command."""
        self._complain(f"unknown command {line.split()[0]}; help lists the commands")

    def do_s(self, arg: str) -> bool:
        """Go to the next statement, in any function."""
        return self._continue_to(self.stops.step(self._row))

    def do_n(self, arg: str) -> bool:
        """Go to the next statement of this function or of its callers."""
        return self._continue_to(self.stops.next(self._at()))

    def do_si(self, arg: str) -> bool:
        """Go to the next instruction."""
        return self._continue_to(self.stops.instruction(self._row))

    def do_until(self, arg: str) -> bool:
        """Go to the next statement after this line (or at or after LINE); stop in the caller if this function returns first."""
        if arg and not arg.isdigit():
            return self._complain(f"until needs a line number, not {arg}")
        return self._continue_to(self.stops.until(self._at(), int(arg) if arg else None))

    def do_r(self, arg: str) -> bool:
        """Go to where this function is about to return; if it already is, to where its caller is about to return."""
        callers = self._trail.callers(self._at())
        returns = len(callers) > 1 and self.stops.is_return(self._at())
        return self._continue_to(self.stops.returning(callers[1] if returns else self._at()))

    def do_c(self, arg: str) -> bool:
        """Go to the next breakpoint or graph break."""
        return (self._has_ended and self._row == self._present) or self._continue_to(None)

    def do_q(self, arg: str) -> bool:
        """Leave the debugger; the function continues and returns its result."""
        self.has_left = True
        return True

    def do_back(self, arg: str) -> bool:
        """Go N recorded instructions back; nothing is executed again."""
        return self._move(arg, -1)

    def do_forward(self, arg: str) -> bool:
        """Go N recorded instructions forward, at most to the newest."""
        return self._move(arg, 1)

    def do_rs(self, arg: str) -> bool:
        """Go back to the previous statement, in any function."""
        return self._go_back(self.stops.step(self._row))

    def do_rn(self, arg: str) -> bool:
        """Go back to the previous statement of this function or of its callers."""
        return self._go_back(self.stops.next(self._at()))

    def do_b(self, arg: str) -> bool:
        """Set a breakpoint, optionally with a condition under which it stops; without an argument, list the breakpoints."""
        if not arg:
            self._say("\n".join(map(str, self.breakpoints)) or "no breakpoints")
            return False
        where, _, condition = f"{arg} ".partition(" if ")
        try:
            target = self._target(where.strip())
            code = compile(condition.strip(), "<condition>", "eval") if condition.strip() else None
        except DynxError as error:
            return self._complain(str(error))
        except SyntaxError as error:
            return self._complain(f"the condition {condition.strip()}: {error.msg}")
        self._last_number = number = self._last_number + 1
        self.breakpoints.append(Breakpoint(number, target, code, condition.strip()))
        self._say(f"breakpoint {number} at {target.place}")
        if code is not None and (self._row != self._present or self._has_ended):
            self._say("conditions are evaluated only while torch traces: the breakpoint does not stop at recorded instructions")
        return False

    def do_clear(self, arg: str) -> bool:
        """Remove breakpoint NUMBER; without an argument, remove all breakpoints."""
        kept = [breakpoint for breakpoint in self.breakpoints if arg and str(breakpoint.number) != arg]
        if arg and len(kept) == len(self.breakpoints):
            return self._complain(f"no breakpoint has the number {arg}; b lists them")
        self.breakpoints[:] = kept
        return False

    def do_u(self, arg: str) -> bool:
        """Select the frame that called this one."""
        return self._look_at(self._level + 1)

    def do_d(self, arg: str) -> bool:
        """Select the frame that this one called."""
        return self._look_at(self._level - 1)

    def do_p(self, arg: str) -> bool:
        """Evaluate and print an expression of locals, globals, tensor metadata (x.shape); after `back`, only print a local."""
        local_variables = self._state().frames[self._level].locals
        if not arg:
            self._complain("p needs an expression")
        elif arg in local_variables:
            self._say(local_variables[arg])
        elif self._row != self._present or self._has_ended:
            names = ", ".join(local_variables)
            self._complain(f"{arg} is not a local of this frame; at an earlier instruction p prints only locals: {names}")
        else:
            try:
                self._say(repr(self._evaluate(arg)))
            except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever the expression raises
                self._complain(f"{type(error).__name__}: {error}")
        return False

    def do_stack(self, arg: str) -> bool:
        """Print the value stack of this frame, top last."""
        for value in self._state().frames[self._level].stack or ("the stack is empty",):
            self._say(value)
        return False

    def do_locals(self, arg: str) -> bool:
        """Print the local variables of this frame."""
        self._say(screen.table(self._state().frames[self._level].locals.items()) or "no locals")
        return False

    def do_changes(self, arg: str) -> bool:
        """Print each value that a local variable has had in this frame, with the line that assigned it."""
        if not arg:
            return self._complain("changes needs the name of a local")
        values = _trail_reader.values_of(self._trail, self._at(), arg)
        rows = [(f"line {_trail_reader.line_of(self._trail, row)}", text) for row, text in values]
        self._say(screen.table(rows) or f"{arg} has had no value in this frame so far")
        return False

    def do_graph(self, arg: str) -> bool:
        """Print the operations of the FX graph so far."""
        for line in _trail_reader.graph(self._trail, self._row) or ["the graph is empty"]:
            self._say(line)
        return False

    def do_guards(self, arg: str) -> bool:
        """Print the guards installed so far, each with the line that first required it."""
        self._say(screen.guards(_trail_reader.guards(self._trail, self._row)))
        return False

    def do_w(self, arg: str) -> bool:
        """Print the call stack of the traced frames, outermost first."""
        self._say(screen.frames(self._state(), self._level))
        return False

    def do_l(self, arg: str) -> bool:
        """Print the source around this line."""
        self._say(source(self._state().frames[self._level]))
        return False

    def do_help(self, arg: str) -> bool:
        """List the commands, or explain one."""
        name = _ALIASES.get(arg, arg)
        rows = [(usage, getattr(self, f"do_{command}").__doc__) for command, usage in _USAGE.items() if name in ("", command)]
        if not rows:
            return self._complain(f"unknown command {name}; help lists the commands")
        self._say(screen.table(rows))
        return False

    def _at(self) -> int:
        """Return the row (the index in the recording) of the instruction at which the selected frame stands."""
        return _trail_reader.frames(self._trail, self._row, internals=self._internals)[self._level]

    def _state(self) -> TraceState:
        return _trail_reader.state(self._trail, self._row, internals=self._internals)

    def _continue_to(self, stop: Stop | None) -> bool:
        """Go to the next breakpoint, graph break or instruction that meets `stop`; after `back`, only to recorded ones."""
        if self._row == self._present and self._has_ended:
            return self._complain("the trace is over: back and rs move through it, c and q leave")
        if self._row == self._present:
            self.stop = stop
            return True
        for row in (row for row in self._history() if row > self._row):
            is_break = row in self.breaks or any(self._hits(one, row) for one in self.breakpoints)
            if is_break or (stop is not None and stop(row)):
                return self._go_to(row)
        self._say(screen.end_of_history(backwards=False))
        return self._go_to(self._present)

    def _go_back(self, stop: Stop) -> bool:
        rows = [row for row in self._history() if row < self._row and stop(row)]
        return self._go_to(rows[-1]) if rows else self._complain("this is where the trace began")

    def _move(self, arg: str, direction: int) -> bool:
        if arg and not arg.isdigit():
            return self._complain(f"expected a number of instructions, not {arg}")
        rows = self._history()
        index = rows.index(self._row) + direction * int(arg or 1)
        if not 0 <= index < len(rows):
            self._say(screen.end_of_history(backwards=direction < 0))
        return self._go_to(rows[max(0, min(index, len(rows) - 1))])

    def _history(self) -> list[int]:
        """Return the rows of the instructions that `back` and `forward` go through, the newest last."""
        if self._cached_history is None or self._cached_history[-1] != self._present:
            history = _trail_reader.history(self._trail, internals=self._internals)
            self._cached_history = [*(row for row in history if row < self._present), self._present]
        return self._cached_history

    def _hits(self, breakpoint: Breakpoint, row: int) -> bool:
        """Return whether a breakpoint stops at a recorded instruction. A condition must have been true during tracing."""
        return row in breakpoint.rows or (breakpoint.condition is None and self.stops.is_at(breakpoint, row))

    def _go_to(self, row: int, reason: str = "") -> bool:
        self._row, self._level = row, 0
        reason = reason or self.breaks.get(row, "")
        ago = 0 if row == self._present else len(self._history()) - 1 - self._history().index(row)
        self._say(screen.stop(self._state(), 0, reason, ago, exact=not self.stops.begins(row) or bool(reason)))
        return False

    def _look_at(self, level: int) -> bool:
        state = self._state()
        if not 0 <= level < len(state.frames):
            return self._complain("this is the innermost frame" if level < 0 else "this is the outermost frame")
        self._level = level
        self._say(screen.stop(state, level, "", 0, exact=level > 0))
        return False

    def _target(self, where: str) -> Target:
        """Return the location that the argument of command `b` names; raise ProbeFailed if there is no such location."""
        if where.isdigit():
            file, line = _trail_reader.file_of(self._trail, self._at()), int(where)
            if not statements(file):  # no source to find statements in
                return Target(file, None, Statement(line, line))
            return resolve(f"{file}:{line}", None)
        file, _, name = where.replace("::", ":").rpartition(":")
        if file and name.isdigit():
            return resolve(where, None)
        if file and not file.endswith(".py"):
            if file not in sys.modules:  # importing it here would run it
                _no_target(f"the module {file} is not loaded")
            return resolve(where, None)
        function = self._function(name, file or _trail_reader.file_of(self._trail, self._at()))
        if function is None:
            _no_target(f"no function {where} is found here")
        return resolve(function, None)

    def _function(self, name: str, file: str) -> Any:
        """Return the function that `name` refers to in the selected frame, else one of this name in `file`, else None."""
        if not all(part.isidentifier() for part in name.split(".")):
            return None
        try:
            value = self._evaluate(name)
            return value._real if type(value) is Held else value
        except Exception:  # noqa: BLE001 - no such name
            return next((function for function in functions_in(find_file(file), None) if function.__qualname__ == name), None)

    def _evaluate(self, expression: str) -> Any:
        """Evaluate an expression in the selected frame; raise DynxError if Dynamo no longer traces that frame."""
        row_of = self._recorder.row_of
        tx = next((frame for frame in translator.chain(self._tx) if row_of(frame) == self._at()), None)
        if tx is None:
            raise DynxError("Dynamo no longer traces this frame: command p prints its locals, but cannot evaluate expressions")
        return evaluate(tx, translator.local_variables(tx), expression)

    def _say(self, content: RenderableType | None) -> None:
        self._console.print(content, markup=False, soft_wrap=True)

    def _complain(self, text: str) -> bool:
        self._say(f"*** {text}")
        return False


def _no_target(problem: str) -> NoReturn:
    raise ProbeFailed(f"no breakpoint was set: {problem}\n  pass LINE, FILE:LINE, FUNCTION, FILE::FUNCTION or module:function")
