"""`effects.record()`: record what compiled functions mutate, and whether the compiled code repeats it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Self

from dynx._handle import Handle
from dynx._trace import bus
from dynx.records.effects import Effect, EffectReport, FrameEffects
from dynx.records.record import Record

if TYPE_CHECKING:
    from rich.console import RenderableType


def record(*, audit: bool = True) -> EffectLog:
    """Record the side effects of every function that is compiled in a `with` block.

    Compiled code mutates nothing while its graph runs: Dynamo notes each mutation of an object that exists outside of the
    function, and writes bytecode that repeats it afterwards. For some containers Dynamo misses the mutation or writes no
    bytecode for it, and the object keeps its old value without any error. Recording changes no compiled code; it adds at
    most a tenth to tracing time, and nothing to run time. `dynx.check` finds wrong results of every kind.

    Args:
        audit: Whether to include mutations that Dynamo did not note (`unannounced`), by comparing containers.

    Returns:
        A context manager. Its `.frames` has one `FrameEffects` for each compiled graph with side effects: `.effects` in the
        order in which compiled code repeats them, `.events` in the order of the program, and the side effects that compiled
        code does not repeat: `.dropped` (noted by Dynamo) and `.unannounced` (not noted).

    Example:
        >>> import torch
        >>> from collections import OrderedDict
        >>> from dynx import effects
        >>> @torch.compile(backend="eager")
        ... def f(cache, steps, x):
        ...     steps.append(1)
        ...     cache.move_to_end("a")
        ...     return x + 1
        >>> with effects.record() as log:
        ...     _ = f(OrderedDict(a=1, b=2), [], torch.ones(2))
        >>> [(effect.source, effect.before, effect.after) for effect in log.frames[0].effects]
        [("L['steps']", '[]', '[1]'), ("L['cache']", "OrderedDict({'a': 1, 'b': 2})", "OrderedDict({'b': 2, 'a': 1})")]
        >>> [effect.source for effect in log.frames[0].dropped]  # torch does not repeat `move_to_end`
        ["L['cache']"]
    """
    return EffectLog(audit=audit)


class EffectLog(Handle):
    """The side effects recorded by `effects.record()` while its `with` block was open."""

    def __init__(self, *, audit: bool) -> None:
        self._audit = audit
        self._frames: list[FrameEffects] = []
        self._listening: bus.Listening | None = None

    @property
    def frames(self) -> tuple[FrameEffects, ...]:
        """The compiled graphs with side effects, in the order of their compilation."""
        return tuple(self._frames)

    @property
    def report(self) -> EffectReport:
        """The recorded side effects as a record, with `to_json()`."""
        return EffectReport(self.frames)

    @property
    def dropped(self) -> tuple[Effect, ...]:
        """The side effects that Dynamo noted but compiled code does not repeat."""
        return self.report.dropped

    @property
    def unannounced(self) -> tuple[Effect, ...]:
        """The side effects that Dynamo did not note, so that compiled code does not repeat them."""
        return self.report.unannounced

    def to_json(self) -> str:
        """Return the recorded side effects as a JSON document."""
        return self.report.to_json()

    def __enter__(self) -> Self:
        if self._listening is None:
            self._listening = bus.listen(self._on_record, explains_recompiles=False)
        return self

    def remove(self) -> None:
        """Stop recording; the frames recorded so far stay readable."""
        if self._listening is not None:
            self._listening.remove()
            self._listening = None

    def _on_record(self, record: Record) -> None:
        if not isinstance(record, FrameEffects):
            return
        if not self._audit:
            announced = tuple(effect for effect in record.effects if effect.announced)
            record = replace(record, effects=announced, events=tuple(event for event in record.events if event.announced))
        if record.effects:
            self._frames.append(record)

    def __repr__(self) -> str:
        lost = len(self.dropped) + len(self.unannounced)
        return f"<EffectLog: {sum(len(frame.effects) for frame in self._frames)} side effects, {lost} lost>"

    def __rich__(self) -> RenderableType:
        return self.report.__rich__()

    def _repr_html_(self) -> str:
        return self.report._repr_html_()
