"""`post_mortem()`: record Dynamo's frames, graph and guards at each graph break."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

from dynx._handle import Handle
from dynx._reading.user_location import is_visible, named, user_location
from dynx._torch.trace_log.steps import BreakWatch
from dynx._torch.tracing import attempt, translator
from dynx._torch.tracing.graph_breaks import read_break
from dynx._torch.tracing.render import show
from dynx._torch.tracing.stack import of_summaries
from dynx._trace.dispatch import emit, trouble
from dynx.comptime._trail_reader import frame_state
from dynx.errors import UsageError
from dynx.records import Location
from dynx.records.comptime import BreakState, FrameState, TracedGuard

if TYPE_CHECKING:
    from rich.console import RenderableType


def post_mortem(on_break: Callable[[BreakState], Any] | None = None) -> PostMortem:
    """Record Dynamo's frames, locals, graph and guards at each graph break and compile error inside a `with` block.

    An observer: graphs, guards and bytecode are the same with and without it.

    Args:
        on_break: is called with each new BreakState, when the break happens. If it raises, dynx warns and the program
            continues.

    Returns:
        A context manager. Its `.breaks` has one BreakState for each line and kind of graph break. A BreakState has the
        innermost line of your code, the value stack before the instruction, the locals of every symbolic frame, the graph so
        far, and the guards with the lines that requested them.

    Raises:
        UsageError: `on_break` is not callable, or the block is entered while it is open.

    Example:
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
    if on_break is not None and not callable(on_break):
        raise UsageError(
            f"post_mortem(): on_break is {on_break!r}, which is not callable\n  pass a function that takes a BreakState"
        )
    return PostMortem(on_break)


class PostMortem(Handle):
    """The graph breaks recorded by `post_mortem()`; a context manager that records while its `with` block runs."""

    def __init__(self, on_break: Callable[[BreakState], Any] | None = None) -> None:
        self._on_break = on_break
        self._states: dict[tuple[str, int, str], BreakState] = {}  # by cause
        self._watch: BreakWatch | None = None

    @property
    def breaks(self) -> tuple[BreakState, ...]:
        """The recorded graph breaks, one BreakState for each line and kind of break, in the order of their first occurrence."""
        return tuple(self._states.values())

    def __enter__(self) -> Self:
        if self._watch is not None:
            raise UsageError(
                "this post_mortem() is open already: its `with` block has not ended\n"
                "  call post_mortem() again for a nested block"
            )
        self._watch = BreakWatch(self._record, lambda hook, error: trouble("post-mortem", error))
        return self

    def remove(self) -> None:
        """Stop recording graph breaks; those recorded so far stay readable."""
        if self._watch is not None:
            self._watch.remove()
            self._watch = None

    def __iter__(self) -> Iterator[BreakState]:
        return iter(self.breaks)

    def __len__(self) -> int:
        return len(self._states)

    def __repr__(self) -> str:
        return f"<PostMortem: {len(self._states)} breaks>"

    def __rich__(self) -> RenderableType:
        from dynx.report import post_mortem as rendered

        return rendered(self.breaks)

    def _repr_html_(self) -> str:
        from dynx.report import post_mortem_html

        return post_mortem_html(self.breaks)

    def _record(self, error: BaseException, frames: list[tuple[Any, list[Any]]]) -> None:
        state = state_at(error, frames)
        earlier = self._states.get(state.cause)
        if earlier is None or len(state.frames) > len(earlier.frames):
            emit(state)
        if earlier is not None:  # the same break inlined into its caller, in a later attempt, or in a recompile
            fullest = max(earlier, state, key=lambda candidate: len(candidate.frames))
            state = replace(fullest, count=earlier.count + 1, resumable=earlier.resumable and state.resumable)
        self._states[state.cause] = state
        if earlier is None and self._on_break is not None:
            self._on_break(state)


def state_at(error: BaseException, traced: list[tuple[Any, list[Any]]]) -> BreakState:
    """Return a record of Dynamo's state at a graph break, as text, so that it keeps no torch object alive.

    `traced` has the InstructionTranslators, innermost first, each with its value stack before the instruction.
    """
    tx, _ = traced[0]
    graph_break = read_break("", error)
    trace_id = translator.trace_id()
    frames = [_frame(frame_tx, stack) for frame_tx, stack in traced]
    visible = [frame for frame in frames if is_visible(frame.location.file)] or frames
    reported = user_location(of_summaries(getattr(error, "real_stack", None)))
    return BreakState(
        trace_id.compile_id,
        trace_id.attempt,
        _innermost(visible[0].location, reported),
        graph_break.headline,
        graph_break.kind,
        graph_break.explanation,
        graph_break.hints,
        tuple(visible),
        translator.graph_code(tx, verbose=False).strip(),
        translator.node_count(tx),
        tuple(TracedGuard(guard.kind, guard.source, user_location(guard.stack)) for guard in attempt.guards(tx)),
        graph_break.resumable,
    )


def _innermost(traced: Location, reported: Location | None) -> Location:
    """Return the location of a graph break: `traced`, that of the traced frame, unless torch's error reports another line.

    `traced` is preferred because it has columns. The lines differ if the error was raised in an inner frame that is no longer
    traced: then only torch's error (its `real_stack`) has the line of the graph break.
    """
    if reported is None or (reported.file, reported.line) == (traced.file, traced.line):
        return traced
    return named(reported)


def _frame(tx: Any, stack: list[Any]) -> FrameState:
    variables = {name: show(tx, variable) for name, variable in translator.local_variables(tx).items()}
    instruction = translator.instruction_text(tx.current_instruction)
    return frame_state(translator.location(tx), instruction, tuple(show(tx, value) for value in stack), variables)
