"""`probe()`: run code whenever a line is traced, without editing the program."""

from __future__ import annotations

import threading
import warnings
import weakref
from collections.abc import Callable
from types import CodeType, TracebackType
from typing import Any, Literal, Self, get_args

from dynx._torch.capabilities import hook_point
from dynx._torch.hooks import Subscription, subscribe
from dynx._torch.tracing import line_hook, trace_rules
from dynx._trace.dispatch import trouble
from dynx.comptime import _output
from dynx.comptime._bytecode_probe import Rewritten
from dynx.comptime._callback import ON_ERROR, OnError, run
from dynx.comptime._context import ComptimeContext
from dynx.comptime._target import Target, codes_in, resolve
from dynx.errors import DynxWarning, ProbeFailed

Status = Literal["armed", "hit", "removed"]
Mode = Literal["hook", "rewrite"]
_MODES: tuple[str, ...] = get_args(Mode)
_lock = threading.RLock()
_armed: list[Probe] = []
_subscription: Subscription | None = None


def probe(
    target: Any,
    line: int | None = None,
    *,
    when: Callable[[ComptimeContext], Any] | None = None,
    do: Callable[[ComptimeContext], Any] | None = None,
    mode: Mode = "hook",
    on_error: OnError = "raise",
) -> Probe:
    """Call `do(ctx)` each time a statement is traced; the program is not edited.

    `target` is a function, a method, a module or its class (its forward), `"file.py:12"` or `"package.module:qualname"`, of
    anybody's code. `line` is a line of the file; without it the probe fires where the function begins. A statement fires
    once each time it is executed, also in loops, generators and the rest of a function after a graph break. `when(ctx)`
    decides whether to fire. Without `do` the locals are logged. `do` may log, promise facts, or break the graph, which then
    ends right before the statement.

    `mode="hook"` listens to the tracer, and code that is compiled already must be compiled anew. `mode="rewrite"` puts a
    call into the function's bytecode, which makes torch compile it anew; removing restores the old code and its cache.

    Raises ProbeFailed where the probe cannot fire: a C function, a function that torch does not trace, a line without code.
    Warns when the code is compiled already. Also a context manager.

    >>> import torch
    >>> from dynx.comptime import probe
    >>> def f(x):
    ...     return x + 1
    >>> with probe(f, do=lambda ctx: None) as p:
    ...     y = torch.compile(f, backend="eager")(torch.ones(3))
    >>> p.hits
    1
    """
    if mode not in _MODES or on_error not in ON_ERROR:
        raise ProbeFailed(
            f"probe(mode={mode!r}, on_error={on_error!r}): give one of {', '.join(_MODES)} and one of {', '.join(ON_ERROR)}"
        )
    found = resolve(target, line)
    made = Probe(found, when, do or _log_locals, mode, on_error)
    made._arm()
    return made


def _log_locals(ctx: ComptimeContext) -> None:
    ctx.log(**ctx.locals())


class Probe:
    """A probe that is armed; `remove()` takes it away and restores everything."""

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
        self.hits = 0  # logical hits: how often the statement was traced for code that counts
        self._when, self._do, self._on_error = when, do, on_error
        self._removed = False
        self._places: weakref.WeakKeyDictionary[CodeType, tuple[int, ...]] = weakref.WeakKeyDictionary()
        self._resumed: weakref.WeakSet[Any] = weakref.WeakSet()
        self._entered: weakref.WeakSet[Any] = weakref.WeakSet()
        self._rewritten: Rewritten | None = None

    @property
    def status(self) -> Status:
        """ "armed", "hit" once it has fired, or "removed"."""
        return "removed" if self._removed else "hit" if self.hits else "armed"

    def remove(self) -> None:
        """Disarm; doing it twice does nothing."""
        with _lock:
            if self._removed:
                return
            self._removed = True
            if self._rewritten is not None:
                self._rewritten.restore()
            elif self in _armed:
                # while a compilation is under way its later attempts must find what its first one found
                _output.when_nothing_compiles(self._disarm)

    def _disarm(self) -> None:
        with _lock:
            if self in _armed:
                _armed.remove(self)
                _listen_if_needed()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self.remove()

    def __repr__(self) -> str:
        return f"<Probe {self.target.place} {self.status}, {self.hits} hits>"

    def _arm(self) -> None:
        if self.mode == "rewrite":
            self._rewritten = Rewritten(self.target, self._fire)
            return
        if self._is_compiled():
            warnings.warn(
                f"{self.target.place} is compiled already: the probe fires when it is compiled anew\n"
                '  call torch._dynamo.reset(), or use probe(..., mode="rewrite")',
                DynxWarning,
                stacklevel=3,
            )
        with _lock:
            _armed.append(self)
            _listen_if_needed()

    def _is_compiled(self) -> bool:
        target = self.target
        if target.function is not None:
            return trace_rules.is_compiled(target.function.__code__)
        assert target.statement is not None
        return any(map(trace_rules.is_compiled, codes_in(target.file, target.statement)))

    def _begins(self, tx: Any) -> tuple[int, ...]:
        """Give the instructions of a frame at which to fire."""
        places = self._places.get(tx.f_code)
        if places is None:
            places = self._places[tx.f_code] = self.target.begins(line_hook.traced_code(tx))
        return places

    def _fire(self, tx: Any) -> None:
        if self._removed or self._fired_before_the_break(tx) or self._only_comes_back(tx):
            return
        run(tx, self._run, self._on_error, called=self._do)

    def _fired_before_the_break(self, tx: Any) -> bool:
        """Tell whether this is the rest of a function after a break that a probe made right here."""
        here = tx.instruction_pointer
        if tx in self._resumed or line_hook.resumes_at(tx) != here or not tx.f_code.co_name.endswith(f"_at_{tx.lineno}"):
            return False
        self._resumed.add(tx)
        return True

    def _only_comes_back(self, tx: Any) -> bool:
        """Tell whether a loop came back to the first line of a function: the function begins only once."""
        if self.target.statement is not None:
            return False
        if tx in self._entered:
            return True
        self._entered.add(tx)
        return False

    def _run(self, ctx: ComptimeContext) -> None:
        if self._when is not None and not self._when(ctx):
            return
        _output.when_it_counts(ctx._tx, self._count)
        self._do(ctx)

    def _count(self) -> None:
        self.hits += 1


def _listen_if_needed() -> None:
    global _subscription
    if _armed and _subscription is None:
        _subscription = subscribe(hook_point("frame_run"), _on_frame, on_error=_report)
    elif not _armed and _subscription is not None:
        _subscription.remove()
        _subscription = None


def _on_frame(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    tx = args[0]
    actions: dict[int, list[line_hook.Do]] = {}
    for each in tuple(_armed):
        for index in each._begins(tx):
            actions.setdefault(index, []).append(each._fire)
    if actions:
        line_hook.at_instructions(tx, actions)


def _report(hook: str, error: BaseException) -> None:
    trouble("probes", error)
