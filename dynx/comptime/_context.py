"""`ComptimeContext`: what a comptime callback can read and change at the line being traced."""

from __future__ import annotations

import copy
import time
import traceback
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, TextIO

from dynx._reading.user_location import location_of, named, user_location
from dynx._torch.side_effects import pending as pending_effects
from dynx._torch.tracing import attempt, raising, shape_facts, translator
from dynx._torch.tracing.render import show_value
from dynx._torch.tracing.variables import cell_content, is_kind, settled
from dynx._trace.custom_guards import remember
from dynx._trace.effect_records import effect_record
from dynx.comptime import _output
from dynx.comptime._debug_session import open_here
from dynx.comptime._values.expression import Expression, Number, conjuncts, plain
from dynx.comptime._values.var import ComptimeVar
from dynx.errors import CheckFailed, ComptimeFailed, NoSuchLocal
from dynx.records import Location
from dynx.records.comptime import Logged, TracedGuard
from dynx.records.effects import Effect, Modified

if TYPE_CHECKING:
    import torch


class ComptimeContext:
    """The argument of a comptime callback: Dynamo's state at the line being traced. Valid only while the callback runs.

    It has every method of `torch._dynamo.comptime.ComptimeContext`. `stacklevel` and `level` count frames outwards: 0 is the
    function whose line is traced, 1 the function that inlined it. Every method raises ComptimeFailed after the callback has
    ended, and for a level that does not exist.

    What the methods print and log appears once for each execution of the line, even if Dynamo traces the line several times
    because it restarts; see `dynx.comptime`.
    """

    def __init__(self, tx: Any, before_change: Callable[[], None]) -> None:
        self._translator: Any = tx
        self._before_change = before_change  # called before the trace changes because of a value that the callback has read
        self._children: weakref.WeakSet[ComptimeContext | ComptimeVar | Expression] = weakref.WeakSet()

    @property
    def compile_id(self) -> str:
        """The compile id of the current compilation, such as "0/1"."""
        return translator.trace_id().compile_id

    @property
    def attempt(self) -> int:
        """How many times Dynamo has restarted this compilation; 0 in the first attempt."""
        return translator.trace_id().attempt

    @property
    def location(self) -> Location:
        """The file, line, columns and function being traced; for a resume function, the function that it continues."""
        return named(location_of(translator.location(self._tx)))

    @property
    def depth(self) -> int:
        """The inlining depth of this frame: 0 for the compiled function, 1 for a function inlined into it, and so on."""
        return len(list(translator.chain(self._tx))) - 1

    @property
    def is_resume(self) -> bool:
        """Whether this frame is a resume function, which Dynamo generated for the code after a graph break."""
        return translator.is_resume(self._tx)

    @property
    def is_generator(self) -> bool:
        """Whether this frame runs the body of a generator function."""
        return translator.is_generator(self._tx)

    @property
    def in_subgraph(self) -> bool:
        """Whether the body of a higher-order operator (cond, scan, checkpoint) or transform (vmap, grad) is being traced."""
        return translator.in_subgraph(self._tx)

    def parent(self) -> ComptimeContext:
        """Return the context of the frame that inlines this one; raise ComptimeFailed in the outermost frame."""
        return self._context(self._at(1))

    def frames(self) -> tuple[ComptimeContext, ...]:
        """Return the contexts of this frame and of the frames that inline it, innermost first."""
        return tuple(self._context(tx) for tx in translator.chain(self._tx))

    def local(self, name: str, level: int = 0) -> ComptimeVar:
        """Return a local or closed-over variable of a traced frame by its name.

        Args:
            name: the name in the user's code.
            level: how many frames outwards to look; 0 is the frame that is traced.

        Raises:
            NoSuchLocal: the frame has no such variable, or Dynamo has dropped it because the code does not read it again. The
                message lists the variables of the frame.
        """
        tx = self._at(level)
        location = location_of(translator.location(tx))
        variables = translator.local_variables(tx)
        if name not in variables:
            names = ", ".join(variables) or "none"
            raise NoSuchLocal(
                f"{location.function} has no local {name} here; its locals are: {names}\n  at {location}\n"
                f"  Dynamo drops a variable after the code's last use of it: let the callback close over {name} to keep it"
            )
        variable = variables[name]
        if is_kind(variable, "CellVariable"):
            content = cell_content(tx, variable)
            if content is None:
                raise NoSuchLocal(f"the closed-over variable {name} is not assigned yet at this line\n  at {location}")
            variable = content
        return self._var(tx, variable)

    def get_local(self, name: str, *, stacklevel: int = 0) -> ComptimeVar:
        """Return a local variable: the same as `local`, under the name that torch's ComptimeContext has for it."""
        return self.local(name, stacklevel)

    def locals(self, level: int = 0) -> dict[str, ComptimeVar]:
        """Return the local and closed-over variables of the frame at `level` that have a value, by their names."""
        tx = self._at(level)
        return {
            name: self.local(name, level)
            for name, variable in translator.local_variables(tx).items()
            if not is_kind(variable, "CellVariable") or cell_content(tx, variable) is not None
        }

    def stack(self, level: int = 0) -> tuple[ComptimeVar, ...]:
        """Return the value stack of the frame at `level`: the operands that its bytecode has pushed, top last."""
        tx = self._at(level)
        return tuple(self._var(tx, variable) for variable in tx.stack)

    def graph(self) -> torch.fx.Graph:
        """Return the FX graph traced so far."""
        return self._tx.output.graph

    def guards(self, since: Sequence[TracedGuard] | None = None) -> tuple[TracedGuard, ...]:
        """Return the guards that this trace has installed so far, oldest first.

        Args:
            since: the return value of an earlier call; only guards installed after that call are returned.
        """
        guards = attempt.guards(self._tx, len(since) if since is not None else 0)
        return tuple(TracedGuard(guard.kind, guard.source, user_location(guard.stack)) for guard in guards)

    def side_effects(self) -> tuple[Effect, ...]:
        """Return the mutations that traced code has made so far, of objects that exist outside of the trace.

        Compiled code should repeat them in this order after its graph; `dynx.watch().side_effects` shows whether it does.
        """
        effects = pending_effects.effects(self._tx)
        return tuple(effect_record(effect) for effect in effects)

    def is_modified(self, name: str, level: int = 0) -> Modified:
        """Return what traced code has modified so far in the object of a local variable: its items, and which attributes.

        Args:
            name: a local or closed-over variable, as for `local`.
            level: how many frames outwards to look, as for `local`.

        Raises:
            NoSuchLocal: the frame has no such variable here.
        """
        return Modified(*pending_effects.modified(self._tx, settled(self.local(name, level)._unrealized())))

    def check(self, cond: Any, msg: str | None = None) -> None:
        """Assert a condition on dynamic numbers and let Dynamo rely on it while tracing, as `torch._check` does.

        If all numbers in the condition have a value in this call (no unbacked symbols), the condition becomes a guard.
        Otherwise it becomes an assertion in the graph; if the assertion fails, its RuntimeError names this line.

        Args:
            cond: a comparison, such as `ctx.local("n") % 2 == 0`; for `4 < n < 9` use two checks, or `(4 < n) & (n < 9)`.
            msg: the text of the error; by default the condition.

        Raises:
            CheckFailed: the condition is false in this call.
            ComptimeFailed: `cond` is not a condition on numbers.
        """
        self._before_change()
        condition = self._condition(cond)
        location = self.location
        description = msg or _text(cond)
        if shape_facts.holds_now(condition) is False:
            raise CheckFailed(
                f"the condition of ctx.check or ctx.constrain is false: {description}{_values(condition)}\n"
                f"  checked at {location}"
            )
        if shape_facts.is_unbacked(condition) and not shape_facts.can_assert(condition):
            raise ComptimeFailed(
                f"torch cannot compute {_text(cond)} in the graph, so it cannot assert it\n  at {location}\n"
                "  use + - * // %, for example u > 2 * v instead of u / v > 2"
            )
        for part in conjuncts(cond):
            shape_facts.promise(self._tx, part, location.file, location.line, f"{description}, promised at {location}")

    def assume(self, cond: Any) -> None:
        """Let Dynamo rely on a condition without asserting it. Unsound: if the condition is false, results are wrong.

        Use `ctx.check`, which also asserts the condition, unless you must avoid the assertion. Raises the same errors.
        """
        self._before_change()
        condition = self._condition(cond)
        if shape_facts.holds_now(condition) is False:
            raise CheckFailed(
                f"the condition of ctx.assume is false: {_text(cond)}{_values(condition)}\n  assumed at {self.location}"
            )
        for part in conjuncts(cond):
            shape_facts.suppose(part)

    def constrain(self, v: Any, min: int | None = None, max: int | None = None) -> None:
        """Assert bounds of a dynamic number and let Dynamo rely on them while tracing, as `check` does.

        Args:
            v: a ComptimeVar, an expression of ComptimeVars, or a symbolic number.
            min: the lower bound, inclusive.
            max: the upper bound, inclusive.

        Raises:
            CheckFailed: a bound does not hold in this call.
            ComptimeFailed: neither bound is passed.
        """
        self._before_change()
        number = plain(v)
        if min is None and max is None:
            raise ComptimeFailed("constrain() needs a bound\n  pass min=, max= or both")
        bounds = f"{'' if min is None else f'{min} <= '}{_text(v)}{'' if max is None else f' <= {max}'}"
        if not shape_facts.is_unbacked_symbol(number):
            self.check(number >= min if min is not None else True, bounds)
            self.check(number <= max if max is not None else True, bounds)
            return
        shape_facts.bound(self._tx, number, min, max, f"{bounds}, promised at {self.location}")

    def guard_on(self, fn: Callable[[], Any], *, name: str) -> Any:
        """Add a guard that fails when `fn()` no longer returns a value equal to its current one; return the current value.

        Args:
            fn: is called before every call of the compiled function, so it must be fast. It closes over the objects of the
                current call, and does not see the arguments of later calls.
            name: the name of the guard in the guard tree and, with the old and the new value, in recompile reasons.

        Raises:
            ComptimeFailed: the value cannot be compared later: it cannot be copied, or does not equal its copy (nan);
                or two calls in a row return different values.
        """
        self._before_change()
        value = fn()
        try:
            expected = copy.deepcopy(value)  # detects a list that is mutated in place
        except Exception as error:
            raise ComptimeFailed(
                f"guard_on({name!r}): the value of fn() cannot be copied for comparison: {type(error).__name__}: {error}\n"
                "  return a number, str, or a container of them"
            ) from error
        if not _is_equal(value, expected):
            raise ComptimeFailed(
                f"guard_on({name!r}): the value of fn(), {show_value(value)}, does not equal its copy\n"
                "  return a str, a number other than nan, or a container of these"
            )
        if not _is_equal(fn(), expected):
            raise ComptimeFailed(
                f"guard_on({name!r}): fn() returned two different values\n  return the same value in each call"
            )
        shape_facts.guard_on(self._tx, name, fn, expected, show_value(value))
        remember(name, fn)
        return value

    def graph_break(self, msg: str = "ComptimeContext.graph_break") -> NoReturn:
        """Break the graph at this line, with `msg` as the reason."""
        self._before_change()
        raising.graph_break(msg)

    def assert_static(self, val: ComptimeVar) -> None:
        """Raise AssertionError if `val` is a dynamic number, that is, a SymInt, SymFloat or SymBool."""
        if val.is_dynamic():
            raise AssertionError(f"expected a static value but got the dynamic number {val!r}")

    def log(self, **values: Any) -> None:
        """Print values to standard error, and record them in the `logs` of every open `dynx.watch()`."""
        texts = {name: value if isinstance(value, str) else _text(value) for name, value in values.items()}
        _output.log(self._tx, Logged(self.compile_id, self.location, texts))

    def print(self, val: Any, *, file: TextIO | None = None) -> None:
        """Print a value once per execution of the line, even if Dynamo restarts. With `file`, print in every trace attempt."""
        self._write(val if isinstance(val, str) else _text(val), file)

    def print_graph(self, *, verbose: bool = True, file: TextIO | None = None) -> None:
        """Print the FX graph traced so far, as Python code; `verbose` adds sizes and source lines as comments."""
        self._write(translator.graph_code(self._tx, verbose=verbose), file)

    def print_disas(self, *, file: TextIO | None = None, stacklevel: int = 0) -> None:
        """Print this frame's bytecode, with an arrow at the current instruction; `stacklevel` selects an outer frame."""
        self._write(translator.disassembly(self._at(stacklevel)), file)

    def print_value_stack(self, *, file: TextIO | None = None, stacklevel: int = 0) -> None:
        """Print the value stack (pushed operands, top last) of this frame or, with `stacklevel`, of a frame that inlines it."""
        self._write_lines([f"- {variable!r}" for variable in self.stack(stacklevel)], file)

    def print_locals(self, *, file: TextIO | None = None, stacklevel: int = 0) -> None:
        """Print the local variables, one per line, of this frame or, with `stacklevel`, of a frame that inlines it."""
        self._write_lines([f"{name} = {variable!r}" for name, variable in self.locals(stacklevel).items()], file)

    def print_bt(self, *, file: TextIO | None = None, stacklevel: int = 0) -> None:
        """Print the traced call stack as a traceback, outermost frame first, without the `stacklevel` innermost frames."""
        frames = translator.backtrace(self._at(stacklevel))
        self._write("".join(traceback.StackSummary.from_list(frames).format()), file)

    def print_guards(self, *, file: TextIO | None = None) -> None:
        """Print the guards that this trace has installed so far, each with the line of code that first required it."""
        lines = [f"{guard.kind} {guard.source}  # {guard.location or 'ambient'}" for guard in self.guards()]
        self._write_lines(lines, file)

    def debug(self, *, script: str | Iterable[str] | None = None) -> None:
        """Open the debugger of `dynx.comptime.debug` at this line; it closes when Dynamo finishes or restarts the trace.

        Args:
            script: commands to run instead of prompting, as for `dynx.comptime.debug`.
        """
        open_here(self._tx, script)

    def sleep(self, sec: float) -> None:
        """Sleep for `sec` seconds at compile time, for example to attach a debugger."""
        time.sleep(sec)

    def _i_will_not_complain_if_bc_breaks_InstructionTranslator(self) -> Any:  # noqa: N802 - torch's name
        """Return torch's private `InstructionTranslator`, whose interface may change in any release of torch."""
        return self._tx

    @property
    def _tx(self) -> Any:
        if self._translator is None:
            raise ComptimeFailed("this ComptimeContext is used after its callback has ended\n  use it inside the callback")
        return self._translator

    def _at(self, level: int) -> Any:
        """Return the InstructionTranslator of the frame that is `level` frames outside this one."""
        frames = list(translator.chain(self._tx))
        if not 0 <= level < len(frames):
            raise ComptimeFailed(
                f"no frame is traced at level {level}\n  pass a level from 0, this frame, to {len(frames) - 1}, the outermost"
            )
        return frames[level]

    def _context(self, tx: Any) -> ComptimeContext:
        context = ComptimeContext(tx, self._before_change)
        self._children.add(context)
        return context

    def _var(self, tx: Any, variable: Any) -> ComptimeVar:
        return ComptimeVar(tx, variable, self._children)

    def _end(self) -> None:
        """Invalidate this context and every context and variable that it has returned, so they keep no torch object alive."""
        self._translator = None
        for child in list(self._children):
            child._end()

    def _condition(self, cond: Any) -> Any:
        """Return `cond` as a SymBool or bool; raise ComptimeFailed if it is not a condition on numbers."""
        condition = cond
        if isinstance(cond, Number) and not cond.is_tensor():
            condition = cond.value
        if not shape_facts.is_condition(condition):
            raise ComptimeFailed(
                f"expected a condition on numbers, not {_text(cond)}\n  compare numbers: ctx.check(ctx.local('n') >= 2)"
            )
        return condition

    def _write(self, text: str, file: TextIO | None) -> None:
        _output.write(self._tx, text, file)

    def _write_lines(self, lines: Sequence[str], file: TextIO | None) -> None:
        if lines:
            self._write("\n".join(lines), file)


def _is_equal(value: Any, expected: Any) -> bool:
    try:
        return bool(value == expected)
    except Exception:  # noqa: BLE001 - the user's `__eq__`, and tensors of several elements
        return False


def _values(condition: Any) -> str:
    """Return the current value of each symbol in a condition, as text for the end of an error message: ` (s0=4)`."""
    values = ", ".join(f"{symbol}={value}" for symbol, value in shape_facts.values_now(condition).items())
    return f" ({values})" if values else ""


def _text(value: Any) -> str:
    return repr(value) if isinstance(value, Number) else shape_facts.text_of(value) or show_value(value)
