"""`ComptimeContext`: the place in the traced program at which a callback runs, and what can be asked and changed there."""

from __future__ import annotations

import copy
import time
import traceback
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NoReturn, TextIO

from dynx._torch.tracing import pending, raising, shape_facts, translator
from dynx._torch.tracing.render import show_value
from dynx._torch.tracing.variables import cell_content, is_kind
from dynx._trace.custom_guards import remember
from dynx._trace.user_location import location_of, named, user_location
from dynx.comptime import _output
from dynx.comptime._debug_session import open_here
from dynx.comptime._var import ComptimeVar
from dynx.errors import CheckFailed, ComptimeFailed, NoSuchLocal
from dynx.records import Location
from dynx.records.comptime import Effect, Logged, TracedGuard


class ComptimeContext:
    """What Dynamo knows at the line that it is tracing. Valid while the callback runs.

    Has every method of `torch._dynamo.comptime.ComptimeContext`. `stacklevel` and `level` count frames outwards: 0 is the
    function whose line is traced, 1 the one that inlined it.
    """

    def __init__(self, tx: Any, changes: Callable[[], None]) -> None:
        self._translator: Any = tx
        self._changes = changes  # called before the trace is changed on account of what the callback has read
        self._given: weakref.WeakSet[Any] = weakref.WeakSet()

    @property
    def compile_id(self) -> str:
        """The id of the compilation, "0/1"."""
        return translator.trace_id().compile_id

    @property
    def attempt(self) -> int:
        """How often torch has started this compilation anew."""
        return translator.trace_id().attempt

    @property
    def location(self) -> Location:
        """The line being traced, by the user's name of the function, with columns where Python has them."""
        return named(location_of(translator.place(self._tx)))

    @property
    def depth(self) -> int:
        """How many frames inlined this one."""
        return len(list(translator.chain(self._tx))) - 1

    @property
    def is_resume(self) -> bool:
        """Whether this is the rest of a function after a graph break."""
        return translator.is_resume(self._tx)

    @property
    def is_generator(self) -> bool:
        return translator.is_generator(self._tx)

    @property
    def in_subgraph(self) -> bool:
        """Whether the body of a higher-order operator (cond, scan, checkpoint) is being traced."""
        return translator.in_subgraph(self._tx)

    def parent(self) -> ComptimeContext:
        """Give the context of the frame that inlined this one. Raises ComptimeFailed where there is none."""
        return self._give(ComptimeContext(self._at(1), self._changes))

    def frames(self) -> tuple[ComptimeContext, ...]:
        """Give the context of every symbolic frame, innermost first."""
        return tuple(self._give(ComptimeContext(tx, self._changes)) for tx in translator.chain(self._tx))

    def local(self, name: str, level: int = 0) -> ComptimeVar:
        """Give a local variable, also one that is closed over. Raises NoSuchLocal with the names there are."""
        tx = self._at(level)
        where = location_of(translator.place(tx))
        variables = translator.local_variables(tx)
        if name not in variables:
            known = ", ".join(variables) or "none"
            raise NoSuchLocal(
                f"{where.function} has no local {name} here; it has: {known}\n  at {where}\n"
                "  torch keeps no variable that the code does not read again: close over it instead"
            )
        variable = variables[name]
        if is_kind(variable, "CellVariable"):
            content = cell_content(tx, variable)
            if content is None:
                raise NoSuchLocal(f"the closed-over variable {name} has no value yet\n  at {where}")
            variable = content
        return self._give(ComptimeVar(tx, variable))

    def get_local(self, name: str, *, stacklevel: int = 0) -> ComptimeVar:
        """Give a local variable; torch's name for `local`."""
        return self.local(name, stacklevel)

    def locals(self, level: int = 0) -> dict[str, ComptimeVar]:
        """Give the locals that have a value, by the user's names."""
        tx = self._at(level)
        found = {}
        for name, variable in translator.local_variables(tx).items():
            if not is_kind(variable, "CellVariable") or cell_content(tx, variable) is not None:
                found[name] = self.local(name, level)
        return found

    def stack(self, level: int = 0) -> tuple[ComptimeVar, ...]:
        """Give Python's value stack, the top last."""
        tx = self._at(level)
        return tuple(self._give(ComptimeVar(tx, each)) for each in tx.stack)

    def graph(self) -> Any:
        """Give the `torch.fx.Graph` traced so far."""
        return self._tx.output.graph

    def guards(self, since: Sequence[TracedGuard] | None = None) -> tuple[TracedGuard, ...]:
        """List the guards asked for so far, oldest first; `since` leaves out those that an earlier answer held."""
        found = pending.guards(self._tx, len(since) if since is not None else 0)
        return tuple(TracedGuard(each.kind, each.source, user_location(each.stack)) for each in found)

    def side_effects(self) -> tuple[Effect, ...]:
        """List the changes to outside objects that the compiled code will make when it has run."""
        return tuple(Effect(each.source, each.kind, each.after) for each in pending.effects(self._tx))  # type: ignore[arg-type]

    def check(self, cond: Any, msg: str | None = None) -> None:
        """Promise that a condition on dynamic numbers holds, and have it asserted.

        Where every number is known in this call it becomes a guard, and one that is false now raises CheckFailed; else it is
        asserted at run time, and the RuntimeError of a violated one names this line. Follows `torch._check`.
        """
        self._changes()
        condition = self._condition(cond)
        where = self.location
        text = f"{msg or _text(condition)}, promised at {where}"
        if shape_facts.holds_now(condition) is False:
            raise CheckFailed(f"{msg or _text(condition)}: does not hold\n  promised at {where}")
        shape_facts.promise(self._tx, condition, where.file, where.line, text)

    def assume(self, cond: Any) -> None:
        """Have the tracer take a condition for true. Unsound: nothing asserts it, a false one gives wrong results.

        Use `check` unless the assertion itself is in the way.
        """
        self._changes()
        condition = self._condition(cond)
        if shape_facts.holds_now(condition) is False:
            raise CheckFailed(f"{_text(condition)}: cannot be assumed, it is false\n  assumed at {self.location}")
        shape_facts.suppose(condition)

    def constrain(self, v: Any, min: int | None = None, max: int | None = None) -> None:
        """Promise the bounds of a number, both inclusive; asserted like `check`."""
        self._changes()
        number = v.value if isinstance(v, ComptimeVar) else v
        if min is None and max is None:
            raise ComptimeFailed("constrain() needs a bound\n  give min=, max= or both")
        where = f"{'' if min is None else f'{min} <= '}{_text(number)}{'' if max is None else f' <= {max}'}"
        if not shape_facts.is_unbacked(number):
            self.check(number >= min if min is not None else True, where)
            self.check(number <= max if max is not None else True, where)
            return
        shape_facts.bound(self._tx, number, min, max, f"{where}, promised at {self.location}")

    def guard_on(self, fn: Callable[[], Any], *, name: str) -> Any:
        """Recompile whenever `fn()` is not equal to what it gives now; gives that value.

        `fn` is called before every call of the compiled function, so it must be fast; it asks the objects that it closes over
        now, not the arguments of a later call. Shows as `name` in the guard tree and, with both values, in the reasons of a
        recompile.
        """
        self._changes()
        answer = fn()
        try:
            kept = copy.deepcopy(answer)  # a list that is changed in place must differ from what it was
        except Exception as error:
            raise ComptimeFailed(
                f"guard_on({name!r}): what fn() gives cannot be kept for comparison: {type(error).__name__}: {error}\n"
                "  give a number, text, or a container of them"
            ) from error
        shape_facts.guard_on(self._tx, name, fn, kept, show_value(answer))
        remember(name, fn)
        return answer

    def graph_break(self, msg: str = "ComptimeContext.graph_break") -> NoReturn:
        """Break the graph here."""
        self._changes()
        raising.graph_break(msg)

    def assert_static(self, val: ComptimeVar) -> None:
        """Raise AssertionError when the number is dynamic."""
        if val.is_dynamic():
            raise AssertionError(f"expected static but got dynamic: {val!r}")

    def log(self, **values: Any) -> None:
        """Show values on standard error and record them in every `dynx.watch()`, as `run.logs`."""
        texts = {name: each if isinstance(each, str) else _text(each) for name, each in values.items()}
        _output.log(self._tx, Logged(self.compile_id, self.location, texts))

    def print(self, val: Any, *, file: TextIO | None = None) -> None:
        self._write(val if isinstance(val, str) else _text(val), file)

    def print_graph(self, *, verbose: bool = True, file: TextIO | None = None) -> None:
        """Print the graph traced so far, as Python code."""
        self._write(translator.graph_code(self._tx, verbose=verbose), file)

    def print_disas(self, *, file: TextIO | None = None, stacklevel: int = 0) -> None:
        """Print the bytecode of the frame with an arrow at the instruction."""
        self._write(translator.disassembly(self._at(stacklevel)), file)

    def print_value_stack(self, *, file: TextIO | None = None, stacklevel: int = 0) -> None:
        """Print Python's value stack, the top last."""
        self._write_lines([f"- {each!r}" for each in self.stack(stacklevel)], file)

    def print_locals(self, *, file: TextIO | None = None, stacklevel: int = 0) -> None:
        self._write_lines([f"{name} = {each!r}" for name, each in self.locals(stacklevel).items()], file)

    def print_bt(self, *, file: TextIO | None = None, stacklevel: int = 0) -> None:
        """Print the stack of symbolic frames, outermost first, as Python prints a traceback."""
        frames = translator.backtrace(self._at(stacklevel))
        self._write("".join(traceback.StackSummary.from_list(frames).format()), file)

    def print_guards(self, *, file: TextIO | None = None) -> None:
        """Print the guards asked for so far, one a line, with the line that asked first."""
        lines = [f"{each.kind} {each.source}  # {each.location or 'ambient'}" for each in self.guards()]
        self._write_lines(lines, file)

    def debug(self, *, script: str | Iterable[str] | None = None) -> None:
        """Open the symbolic debugger here, until the attempt ends; see `dynx.comptime.debug`."""
        open_here(self._tx, script)

    def sleep(self, sec: float) -> None:
        time.sleep(sec)

    def _i_will_not_complain_if_bc_breaks_InstructionTranslator(self) -> Any:  # noqa: N802 - torch's name
        """Give torch's own object, which changes from release to release."""
        return self._tx

    @property
    def _tx(self) -> Any:
        if self._translator is None:
            raise ComptimeFailed("this context was valid while its callback ran; it is over\n  use it inside of the callback")
        return self._translator

    def _at(self, level: int) -> Any:
        frames = list(translator.chain(self._tx))
        if not 0 <= level < len(frames):
            raise ComptimeFailed(f"there is no frame {level}: only {len(frames)} are traced here\n  0 is the innermost")
        return frames[level]

    def _give(self, given: Any) -> Any:
        self._given.add(given)
        return given

    def _end(self) -> None:
        """Let go of everything of torch, also for those who kept this."""
        self._translator = None
        for each in list(self._given):
            each._end()

    def _condition(self, cond: Any) -> Any:
        condition = cond
        if isinstance(cond, ComptimeVar) and not cond.is_tensor():
            condition = cond.value
        if not shape_facts.is_condition(condition):
            raise ComptimeFailed(f"a condition is needed, not {_text(cond)}\n  compare numbers: ctx.check(ctx.local('n') >= 2)")
        return condition

    def _write(self, text: str, file: TextIO | None) -> None:
        _output.write(self._tx, text, file)

    def _write_lines(self, lines: Sequence[str], file: TextIO | None) -> None:
        if lines:
            self._write("\n".join(lines), file)


def _text(value: Any) -> str:
    if isinstance(value, ComptimeVar):
        return repr(value)
    expression = getattr(getattr(value, "node", None), "expr", None)  # of a dynamic number
    return show_value(value) if expression is None else str(expression)
