"""`timeline()`: what each line of source cost while torch traced it."""

from __future__ import annotations

import json
import linecache
from collections import Counter
from collections.abc import Iterator
from types import CodeType, TracebackType
from typing import Any, Self

from dynx._torch.compilation.frame import user_name
from dynx._torch.trace_log.line_timer import RawAttempt, RawLine, TracingClock
from dynx._trace.dispatch import trouble
from dynx._trace.guard_requests import short_source
from dynx._trace.user_location import first_line, is_visible, location_of, named, owner_of_file
from dynx.errors import DynxError
from dynx.records import Location, merge
from dynx.records.codec import to_data
from dynx.records.comptime import TracedGuard
from dynx.records.timeline import LineCost, TracedCompile


def timeline() -> Timeline:
    """Measure what tracing costs, line by line, while the block lasts.

    `tl.by_line()` gives for each line its seconds, the FX nodes it added and the guards it asked for; `tl.compiles` each
    compilation with the backend's time beside it; `tl.wasted` the seconds of attempts that a graph break threw away;
    `tl.guard_origins("L['x']")` every line that asked for a guard on a value. Changes nothing: the same graphs and guards.

    >>> import torch
    >>> from dynx.comptime import timeline
    >>> with timeline() as tl:
    ...     _ = torch.compile(lambda x: x.sin() + 1, backend="eager")(torch.ones(3))
    >>> tl.by_line()[0].nodes
    ('sin', 'add')
    """
    return Timeline()


class Timeline:
    """What `timeline()` has measured; a context manager."""

    def __init__(self) -> None:
        self._clock: TracingClock | None = None
        self._attempts: list[RawAttempt] = []
        self._lines: dict[bool, tuple[LineCost, ...]] = {}
        self._taken: set[int] = set()

    def __enter__(self) -> Self:
        if self._clock is not None:
            raise DynxError("this timeline is open already\n  make another one")
        self._clock = TracingClock(_report)
        self._attempts = self._clock.attempts
        self._lines = {}
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        if self._clock is not None:
            self._clock.remove()
            self._clock = None

    @property
    def compiles(self) -> tuple[TracedCompile, ...]:
        """Each compilation with the time of its tracing, its backend and its discarded attempts."""
        return tuple(_compile(attempts) for attempts in self._by_compile())

    @property
    def wasted(self) -> float:
        """Wall seconds in attempts that were thrown away."""
        return sum(each.wasted for each in self.compiles)

    @property
    def seconds(self) -> float:
        """Wall seconds of tracing that count, without the backend's."""
        return sum(each.seconds for each in self.compiles)

    def by_line(self, *, internals: bool = False) -> tuple[LineCost, ...]:
        """Give the lines, most expensive first; those inside of torch and the standard library only with `internals`."""
        if internals not in self._lines or self._clock is not None:
            last = (attempts[-1] for attempts in self._by_compile())
            self._lines[internals] = merge.lines(each for one in last for each in _costs(one, internals=internals))
        return self._lines[internals]

    def guard_origins(self, name: str) -> tuple[Location, ...]:
        """Give every line that asked for a guard on a value, most expensive first: `"L['x']"`, or `"x"` for short."""
        lines = self.by_line(internals=True)
        return tuple(each.location for each in lines if any(_is_named(name, guard.source) for guard in each.guards))

    def to_json(self) -> str:
        """Give everything as one JSON document."""
        data = {"compiles": [to_data(each) for each in self.compiles], "lines": [to_data(each) for each in self.by_line()]}
        return json.dumps(data, indent=1)

    def take(self, compile_id: str) -> tuple[TracedCompile | LineCost, ...]:
        """Give what was measured of a compilation that has ended, once."""
        new = [n for n, each in enumerate(self._attempts) if n not in self._taken and each.trace_id.compile_id == compile_id]
        self._taken.update(new)
        attempts = [self._attempts[n] for n in new]
        return (_compile(attempts), *_costs(attempts[-1], internals=False)) if attempts else ()

    def _by_compile(self) -> list[list[RawAttempt]]:
        """Group the attempts by compilation; the last of each is the one that counts."""
        groups: dict[tuple[str, int], list[RawAttempt]] = {}
        begun: Counter[str] = Counter()
        for attempt in self._attempts:
            name = attempt.trace_id.compile_id
            begun[name] += attempt.trace_id.attempt == 0  # ids repeat after a reset
            groups.setdefault((name, begun[name]), []).append(attempt)
        return list(groups.values())

    def __repr__(self) -> str:
        return f"<Timeline: {len(self.compiles)} compiles, {self.seconds:.3f} s tracing, {self.wasted:.3f} s wasted>"

    def __rich__(self) -> Any:
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
        sum(_seconds(each) + each.backend for each in discarded),
    )


def _seconds(attempt: RawAttempt) -> float:
    return sum(line.seconds for line in attempt.lines.values())


def _costs(attempt: RawAttempt, *, internals: bool) -> Iterator[LineCost]:
    for (code, number), line in attempt.lines.items():
        if internals or is_visible(code.co_filename):
            # instructions before the first line have none
            yield _cost(code, number if number > 0 else first_line(code), line)


def _cost(code: CodeType, number: int, line: RawLine) -> LineCost:
    """The rest of a function after a break counts as the function."""
    file = code.co_filename
    location = named(Location(file, number, user_name(code.co_qualname), library=owner_of_file(file)[1]))
    return LineCost(
        location,
        linecache.getline(file, number).rstrip("\n"),
        line.instructions,
        line.seconds,
        line.cumulative,
        tuple(line.nodes),
        tuple(TracedGuard(kind, source, location) for kind, source in line.guards),
        tuple(line.shape_guards),
        line.exceptions,
    )


def _report(hook: str, error: BaseException) -> None:
    trouble("timeline", error)
