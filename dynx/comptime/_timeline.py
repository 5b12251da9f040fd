"""`timeline()`: measure what each line of source costs while Dynamo traces it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from types import CodeType
from typing import TYPE_CHECKING, Self

from dynx._bytecode.source import line_at
from dynx._handle import Handle
from dynx._reading.user_location import first_line, is_visible, location_of, named, owner_of_file
from dynx._torch.compilation.frame import user_name
from dynx._torch.trace_log.line_timer import Line, RawAttempt, RawLine, TracingClock
from dynx._trace.dispatch import trouble
from dynx._trace.guards.requests import short_source
from dynx.errors import UsageError
from dynx.records import Location, merge
from dynx.records.codec import to_data
from dynx.records.comptime import LineCost, TracedCompile, TracedGuard

if TYPE_CHECKING:
    from rich.console import RenderableType


def timeline() -> Timeline:
    """Measure the seconds, FX nodes and guards of each source line while Dynamo traces it, inside a `with` block.

    An observer: graphs and guards are the same with and without it. The time of the backend is separate. Attempts that Dynamo
    discarded to restart the trace count as `wasted`.

    Returns:
        A context manager, whose results are readable inside the block and after it.

    Raises:
        UsageError: the block is entered while it is open.

    Example:
        >>> import torch
        >>> from dynx.comptime import timeline
        >>> with timeline() as tl:
        ...     _ = torch.compile(lambda x: x.sin() + 1, backend="eager")(torch.ones(3))
        >>> tl.by_line()[0].nodes
        ('sin', 'add')
    """
    return Timeline()


class Timeline(Handle):
    """The measurements of `timeline()`; a context manager that measures while its `with` block runs."""

    def __init__(self) -> None:
        self._clock: TracingClock | None = None
        self._attempts: list[RawAttempt] = []
        self._lines: dict[bool, tuple[LineCost, ...]] = {}  # by whether they include internals
        self._taken: set[int] = set()  # indices of attempts that `take` has returned

    def __enter__(self) -> Self:
        if self._clock is not None:
            raise UsageError(
                "this timeline() is open already: its `with` block has not ended\n  call timeline() again for a nested block"
            )
        self._clock = TracingClock(lambda hook, error: trouble("timeline", error))
        self._attempts = self._clock.attempts
        self._lines = {}
        return self

    def remove(self) -> None:
        """Stop measuring; the results stay readable."""
        if self._clock is not None:
            self._clock.remove()
            self._clock = None

    @property
    def compiles(self) -> tuple[TracedCompile, ...]:
        """All compilations, each with the seconds of its tracing, of its backend and of its discarded attempts."""
        return tuple(_compile(attempts) for attempts in self._by_compile())

    @property
    def wasted(self) -> float:
        """Wall seconds of the trace attempts that Dynamo discarded to restart, including their backend."""
        return sum(compilation.wasted for compilation in self.compiles)

    @property
    def seconds(self) -> float:
        """Wall seconds of tracing, without the attempts that Dynamo discarded and without the backend."""
        return sum(compilation.seconds for compilation in self.compiles)

    def by_line(self, *, internals: bool = False) -> tuple[LineCost, ...]:
        """Return the cost of tracing each source line, most expensive first.

        Args:
            internals: whether to include lines of torch and the standard library. By default, their nodes count for the line of
                user or other library code that led to them.
        """
        if internals not in self._lines or self._clock is not None:
            attempts = (group[-1] for group in self._by_compile())
            self._lines[internals] = merge.lines(line for attempt in attempts for line in _costs(attempt, internals=internals))
        return self._lines[internals]

    def guard_origins(self, name: str) -> tuple[Location, ...]:
        """Return the source lines that required a guard on a value, sorted by the time that tracing them took, longest first.

        Args:
            name: the source of the value as guards write it, `"L['x']"`, or `"x"` for short.
        """
        lines = self.by_line(internals=True)
        return tuple(line.location for line in lines if any(_is_named(name, guard.source) for guard in line.guards))

    def to_json(self) -> str:
        """Return all compilations and lines as one JSON document."""
        data = {
            "compiles": [to_data(compilation) for compilation in self.compiles],
            "lines": [to_data(line) for line in self.by_line()],
        }
        return json.dumps(data, indent=1)

    def take(self, compile_id: str) -> tuple[TracedCompile | LineCost, ...]:
        """Return the measurements of the finished compilation with this id, and of its lines.

        Leave out what an earlier call has returned: after `torch._dynamo.reset()`, another compilation gets the same id.
        """
        of_id = {index: attempt for index, attempt in enumerate(self._attempts) if attempt.trace_id.compile_id == compile_id}
        attempts = [attempt for index, attempt in of_id.items() if index not in self._taken]
        self._taken |= of_id.keys()
        return (_compile(attempts), *_costs(attempts[-1], internals=False)) if attempts else ()

    def _by_compile(self) -> list[list[RawAttempt]]:
        """Group the trace attempts by compilation; the last attempt of each group is the one that Dynamo did not discard."""
        groups: dict[tuple[str, int], list[RawAttempt]] = {}  # by compile id and its occurrence
        occurrences: Counter[str] = Counter()  # ids start again after `torch._dynamo.reset()`
        for attempt in self._attempts:
            compile_id = attempt.trace_id.compile_id
            occurrences[compile_id] += attempt.trace_id.attempt == 0
            groups.setdefault((compile_id, occurrences[compile_id]), []).append(attempt)
        return list(groups.values())

    def __repr__(self) -> str:
        return f"<Timeline: {len(self.compiles)} compiles, {self.seconds:.3f} s tracing, {self.wasted:.3f} s wasted>"

    def __rich__(self) -> RenderableType:
        from dynx.report import timeline as rendered

        return rendered(self.compiles, self.by_line())

    def _repr_html_(self) -> str:
        from dynx.report import timeline_html

        return timeline_html(self.compiles, self.by_line())


def _is_named(name: str, source: str) -> bool:
    return name in (source, short_source(source)) or source.endswith(f"['{name}']")  # an item of **kwargs


def _compile(attempts: list[RawAttempt]) -> TracedCompile:
    last, discarded = attempts[-1], attempts[:-1]
    return TracedCompile(
        last.trace_id.compile_id,
        named(location_of(last.root._replace(function=user_name(last.root.function)))),
        len(attempts),
        _seconds(last),
        last.backend,
        sum(_seconds(attempt) + attempt.backend for attempt in discarded),
    )


def _seconds(attempt: RawAttempt) -> float:
    return sum(line.seconds for line in attempt.lines.values())


def _costs(attempt: RawAttempt, *, internals: bool) -> Iterator[LineCost]:
    nodes = _nodes_by_line(attempt, internals=internals)
    for (code, number), line in attempt.lines.items():
        if internals or is_visible(code.co_filename):
            yield _cost(code, number, line, nodes.get((code, number), []))


def _nodes_by_line(attempt: RawAttempt, *, internals: bool) -> dict[Line, list[str]]:
    """Return the names of FX nodes, by the source line that created them.

    Without `internals`, a node created in torch or the standard library counts for the line of other code that called it.
    """
    names: dict[Line, list[str]] = {}
    for line in attempt.lines.values():
        for node in line.nodes:
            lines = node.lines if internals else [at for at in node.lines if is_visible(at[0].co_filename)]
            if lines:
                names.setdefault(lines[0], []).append(node.name)
    return names


def _cost(code: CodeType, number: int, line: RawLine, nodes: Sequence[str]) -> LineCost:
    """Return the cost record of one line; attribute a line of a resume function to the function that the user wrote."""
    file = code.co_filename
    number = number if number > 0 else first_line(code)  # instructions before the first line have no line number
    _, library = owner_of_file(file)
    location = named(Location(file, number, user_name(code.co_qualname), library=library))
    return LineCost(
        location,
        line_at(file, number, location.function).rstrip("\n"),
        line.instructions,
        line.seconds,
        line.cumulative,
        tuple(nodes),
        tuple(TracedGuard(kind, source, location) for kind, source in line.guards),
        tuple(line.shape_guards),
        line.exceptions,
    )
