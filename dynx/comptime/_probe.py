"""`probe()`: call a function whenever Dynamo traces a chosen line, without editing the program."""

from __future__ import annotations

import threading
import warnings
import weakref
from collections.abc import Callable
from types import CodeType
from typing import Any, Literal, get_args

from dynx._handle import Handle
from dynx._torch.capabilities import hook_point
from dynx._torch.hooks import subscribe
from dynx._torch.trace_log.steps import room_for_frames
from dynx._torch.tracing import line_hook, trace_rules, translator
from dynx._trace.dispatch import trouble
from dynx.comptime import _output
from dynx.comptime._bytecode_probe import BytecodeProbe
from dynx.comptime._callback import ON_ERROR, OnError, bad_on_error, run
from dynx.comptime._context import ComptimeContext
from dynx.comptime._target import Target, codes_in, resolve
from dynx.errors import DynxWarning, UsageError

Status = Literal["armed", "hit", "removed"]
Mode = Literal["hook", "rewrite"]
_MODES: tuple[str, ...] = get_args(Mode)
_lock = threading.RLock()
_armed: list[Probe] = []  # probes with mode="hook"
_handles: tuple[Handle, ...] = ()  # of the hook that runs at the start of every traced frame, while a probe is armed


def probe(
    target: str | Callable[..., Any],
    line: int | None = None,
    *,
    when: Callable[[ComptimeContext], Any] | None = None,
    do: Callable[[ComptimeContext], Any] | None = None,
    mode: Mode = "hook",
    on_error: OnError = "raise",
) -> Probe:
    """Call `do(ctx)` each time Dynamo traces a statement, without editing the program.

    `.hits` counts the executions of the statement, for example in a loop, but not the repeated traces after a restart.

    Args:
        target: a function, a method, a module or its class (its forward), `"file.py:12"`, `"file.py::function"`, or
            `"module:function"`, in the user's code or in a library.
        line: a line number of the file, within `target`; by default the probe fires where the function begins.
        when: `when(ctx)` returns whether to fire; by default always.
        do: is called with a ComptimeContext. It may log, assert conditions, or break the graph, which then ends before the
            statement. By default the locals are logged.
        mode: "hook" (default) observes the tracer: code that is compiled already must be compiled again. "rewrite" puts a call
            into the bytecode of the function, which makes torch compile it again; removing the probe restores the old code
            and its cache entries.
        on_error: "raise" (default) fails the compilation if a callback raises. With "warn" (a warning) and "record" (adds the
            error to `dynx.watch().troubles`) the compilation continues.

    Returns:
        The armed probe: a context manager with `.hits`, `.status` and `.remove()`. Warns if the code is compiled already.

    Raises:
        ProbeFailed: the probe can never fire: a C function, a function that torch does not trace, a line without code.
        UsageError: an option has an invalid value, or the line is given twice.

    Example:
        >>> import torch
        >>> from dynx.comptime import probe
        >>> def f(x):
        ...     return x + 1
        >>> with probe(f, do=lambda ctx: None) as p:
        ...     y = torch.compile(f, backend="eager")(torch.ones(3))
        >>> p.hits
        1
    """
    if mode not in _MODES:
        raise UsageError(f"probe(): mode is {mode!r}\n  valid choices: {', '.join(_MODES)}")
    if on_error not in ON_ERROR:
        raise UsageError(f"probe() failed: {bad_on_error(on_error)}")
    for name, callback in (("when", when), ("do", do)):
        if callback is not None and not callable(callback):
            raise UsageError(
                f"probe(): {name} is {callback!r}, which is not callable\n  pass a function that takes a ComptimeContext"
            )
    if line is not None and isinstance(target, str) and target.rpartition(":")[2].isdigit():
        raise UsageError(
            f"probe({target!r}, {line}): two lines are given, in the target and as `line`\n  leave out one of them"
        )
    armed = Probe(resolve(target, line), when, do or _log_locals, mode, on_error)
    armed._arm()
    return armed


def _log_locals(ctx: ComptimeContext) -> None:
    ctx.log(**ctx.locals())


class Probe(Handle):
    """A callback that `probe()` has set on a traced statement; `remove()` removes it and restores torch and the bytecode.

    A probe that is removed during a compilation stays active until that compilation ends, because all trace attempts of one
    compilation must meet the same probes.
    """

    def __init__(
        self,
        target: Target,
        when: Callable[[ComptimeContext], Any] | None,
        do: Callable[[ComptimeContext], Any],
        mode: Mode,
        on_error: OnError,
    ) -> None:
        self.target = target
        self.mode = mode
        self.hits = 0  # executions of the statement, without those in attempts that Dynamo discarded
        self._when, self._do, self._on_error = when, do, on_error
        self._removed = False
        self._indices: weakref.WeakKeyDictionary[CodeType, tuple[int, ...]] = weakref.WeakKeyDictionary()
        self._resumed: weakref.WeakSet[Any] = weakref.WeakSet()  # translators
        self._entered: weakref.WeakSet[Any] = weakref.WeakSet()  # translators
        self._bytecode_probe: BytecodeProbe | None = None

    @property
    def status(self) -> Status:
        """ "armed" until the probe has fired, then "hit"; "removed" after `remove()`."""
        return "removed" if self._removed else "hit" if self.hits else "armed"

    def remove(self) -> None:
        """Remove the probe; a second call does nothing."""
        with _lock:
            if self._removed:
                return
            self._removed = True
            if self._bytecode_probe is not None:
                self._bytecode_probe.remove()
            elif self in _armed:
                # all attempts of a compilation must have the same line hooks, or torch's speculation log does not match
                _output.after_compilation(self._disarm)

    def _disarm(self) -> None:
        with _lock:
            if self in _armed:
                _armed.remove(self)
                _update_subscription()

    def __repr__(self) -> str:
        return f"<Probe {self.target.place} {self.status}, {self.hits} hits>"

    def _arm(self) -> None:
        if self.mode == "rewrite":
            self._bytecode_probe = BytecodeProbe(self.target, self._fire)
            return
        if self._is_compiled():
            warnings.warn(
                f"{self.target.place} is compiled already: the probe fires only when torch compiles it again\n"
                '  call torch._dynamo.reset(), or use probe(..., mode="rewrite")',
                DynxWarning,
                stacklevel=3,
            )
        if translator.trace_id().compile_id:
            warnings.warn(
                f"torch is compiling now: the probe at {self.target.place} fires only in functions whose tracing begins later\n"
                "  set it before the call that compiles",
                DynxWarning,
                stacklevel=3,
            )
        with _lock:
            _armed.append(self)
            _update_subscription()

    def _is_compiled(self) -> bool:
        target = self.target
        if target.function is not None:
            return trace_rules.is_compiled(target.function.__code__)
        assert target.statement is not None
        return any(map(trace_rules.is_compiled, codes_in(target.file, target.statement)))

    def _indices_in(self, tx: Any) -> tuple[int, ...]:
        """Return the indices, in the code of a traced frame, of the instructions before which the probe fires."""
        indices = self._indices.get(tx.f_code)
        if indices is None:
            indices = self._indices[tx.f_code] = self.target.begins(line_hook.traced_code(tx))
        return indices

    def _fire(self, tx: Any) -> None:
        if self._removed or self._fired_before_break(tx) or self._fired_in_frame(tx):
            return
        run(tx, self._run, self._on_error, reported_as=self._do)

    def _fired_before_break(self, tx: Any) -> bool:
        """Return whether this frame is the resume function of a graph break that a probe made at this statement.

        The probe has fired before the graph break, so the statement does not count as a new hit.
        """
        pointer = tx.instruction_pointer
        if tx in self._resumed or line_hook.resumes_at(tx) != pointer or not tx.f_code.co_name.endswith(f"_at_{tx.lineno}"):
            return False
        self._resumed.add(tx)
        return True

    def _fired_in_frame(self, tx: Any) -> bool:
        """Return whether the probe of a function has fired in this frame: a loop back to the first line is not a new call."""
        if self.target.statement is not None:
            return False
        if tx in self._entered:
            return True
        self._entered.add(tx)
        return False

    def _run(self, ctx: ComptimeContext) -> None:
        if self._when is not None and not self._when(ctx):
            return
        _output.on_commit(ctx._tx, self._count_hit)
        self._do(ctx)

    def _count_hit(self) -> None:
        self.hits += 1


def _update_subscription() -> None:
    """Wrap Dynamo's tracing of frames when the first probe with `mode="hook"` is set; unwrap it when the last is removed."""
    global _handles
    if _armed and not _handles:
        frame_hook = subscribe(hook_point("frame_run"), _on_frame, on_error=lambda hook, error: trouble("probes", error))
        _handles = frame_hook, room_for_frames()
    elif not _armed and _handles:
        for handle in _handles:
            handle.remove()
        _handles = ()


def _on_frame(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Add the armed probes on its code to a frame that Dynamo begins to trace; `args[0]` is its InstructionTranslator."""
    tx = args[0]
    actions: dict[int, list[line_hook.Action]] = {}
    for armed in tuple(_armed):
        for index in armed._indices_in(tx):
            actions.setdefault(index, []).append(armed._fire)
    if actions:
        line_hook.at_instructions(tx, actions)
