"""`post_mortem()`: what Dynamo knew where a graph broke."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from types import TracebackType
from typing import Any, Self

from dynx._torch.trace_log.steps import BreakWatch
from dynx._torch.tracing import pending, translator
from dynx._torch.tracing.graph_breaks import read_break
from dynx._torch.tracing.render import show
from dynx._torch.tracing.stack import of_summaries
from dynx._trace.dispatch import emit, trouble
from dynx._trace.user_location import named, owner_of_file, user_location
from dynx.comptime._trail_reader import frame_state
from dynx.errors import DynxError
from dynx.records import Location
from dynx.records.comptime import TracedGuard
from dynx.records.post_mortem import BreakState, FrameState


def post_mortem(on_break: Callable[[BreakState], Any] | None = None) -> PostMortem:
    """Keep the state of the trace at each graph break and compile error, while the block lasts.

    `pm.breaks` has one record for each cause: the innermost line of your code, the value stack before the instruction, the
    locals of every symbolic frame, the graph so far and the guards with the lines that asked for them. `on_break` is called
    with each as it happens. Changes nothing: the same guards and graphs with and without.

    >>> import torch
    >>> from dynx.comptime import post_mortem
    >>> @torch.compile(backend="eager")
    ... def f(x):
    ...     y = x + 1
    ...     print("hello")
    ...     return y
    >>> with post_mortem() as pm:
    ...     _ = f(torch.ones(2))
    hello
    >>> pm.breaks[0].frames[0].locals["y"]
    'Tensor(float32, [2])'
    """
    return PostMortem(on_break)


class PostMortem:
    """What `post_mortem()` has seen; a context manager."""

    def __init__(self, on_break: Callable[[BreakState], Any] | None = None) -> None:
        self._on_break = on_break
        self._seen: dict[tuple[str, int, str], BreakState] = {}
        self._watch: BreakWatch | None = None

    @property
    def breaks(self) -> tuple[BreakState, ...]:
        """One record for each cause, in the order they happened."""
        return tuple(self._seen.values())

    def __enter__(self) -> Self:
        if self._watch is not None:
            raise DynxError("this post_mortem is open already\n  make another one")
        self._watch = BreakWatch(self._note, _report)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        if self._watch is not None:
            self._watch.remove()
            self._watch = None

    def __iter__(self) -> Iterator[BreakState]:
        return iter(self.breaks)

    def __len__(self) -> int:
        return len(self._seen)

    def __repr__(self) -> str:
        return f"<PostMortem: {len(self._seen)} breaks>"

    def __rich__(self) -> Any:
        from dynx.report import post_mortem as rendered

        return rendered(self.breaks)

    def _repr_html_(self) -> str:
        from dynx.report import post_mortem_html

        return post_mortem_html(self.breaks)

    def _note(self, error: BaseException, frames: list[tuple[Any, list[Any]]]) -> None:
        state = state_at(error, frames)
        known = self._seen.get(state.cause)
        if known is None or len(state.frames) > len(known.frames):
            emit(state)
        if known is not None:  # met again: inlined into its caller, in a later attempt, in a recompile
            fullest = max(known, state, key=lambda each: len(each.frames))
            state = replace(fullest, count=known.count + 1, resumable=known.resumable and state.resumable)
        self._seen[state.cause] = state
        if known is None and self._on_break is not None:
            self._on_break(state)


def state_at(error: BaseException, traced: list[tuple[Any, list[Any]]]) -> BreakState:
    """Render what is known at a break; nothing of torch is kept.

    `traced` are the translators, innermost first, each with its value stack before the instruction.
    """
    tx = traced[0][0]
    found = read_break("", error)
    identity = translator.trace_id()
    frames = [_frame(*each) for each in traced]
    visible = [each for each in frames if owner_of_file(each.location.file)[0] in ("user", "library")] or frames
    told = user_location(of_summaries(getattr(error, "real_stack", None)))
    return BreakState(
        identity.compile_id,
        identity.attempt,
        _innermost(visible[0].location, told),
        found.headline,
        found.kind,
        found.explanation,
        found.hints,
        tuple(visible),
        translator.graph_code(tx, verbose=False).strip(),
        translator.node_count(tx),
        tuple(TracedGuard(each.kind, each.source, user_location(each.stack)) for each in pending.guards(tx)),
        found.resumable,
    )


def _innermost(traced: Location, told: Location | None) -> Location:
    """Prefer the frame seen, which has columns; an exception of the traced code may have left frames that only torch tells."""
    if told is None or (told.file, told.line) == (traced.file, traced.line):
        return traced
    return named(told)


def _frame(tx: Any, stack: list[Any]) -> FrameState:
    variables = {name: show(tx, each) for name, each in translator.local_variables(tx).items()}
    instruction = translator.instruction_text(tx.current_instruction)
    return frame_state(translator.place(tx), instruction, tuple(show(tx, each) for each in stack), variables)


def _report(hook: str, error: BaseException) -> None:
    trouble("post-mortem", error)
