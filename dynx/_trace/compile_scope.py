"""One compilation while it happens: a buffer that becomes records when it ends."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field, replace

from dynx._torch.compilation import metrics
from dynx._torch.compilation.events import RawCache, RawDynamic
from dynx._torch.compilation.frame import (
    CompileCall,
    Ending,
    is_skip,
    limit_value,
    module_of,
    restart_reason,
    resumed_at,
    symbolic_sources,
    user_name,
)
from dynx._torch.tracing.graph_breaks import RawBreak, read_break
from dynx._torch.tracing.stack import RawFrame, tracing_stack
from dynx._trace.guard_requests import Requests
from dynx._trace.qualname import enclosing_block
from dynx._trace.user_location import chain_of, first_line, named, owner_of_file, user_location
from dynx.records import (
    Attempt,
    BecameDynamic,
    CacheEvent,
    Compile,
    GaveUp,
    GraphBreak,
    Location,
    Reason,
    Recompile,
    Record,
    TorchWarning,
)
from dynx.records.compile import AttemptOutcome


@dataclass
class Scope:
    """What is known about a compilation that is under way. Lives on the stack of its thread, dies with it."""

    generation: int
    call: CompileCall
    location: Location
    call_site: Location | None
    started: float = field(default_factory=time.perf_counter)
    clock: metrics.PhaseClock = field(default_factory=metrics.PhaseClock)
    attempts: list[Attempt] = field(default_factory=list)
    attempt_started: float = 0.0
    requests: Requests = field(default_factory=Requests)
    reasons: tuple[Reason, ...] = ()
    breaks: list[GraphBreak] = field(default_factory=list)
    dynamic: list[BecameDynamic] = field(default_factory=list)
    caches: list[CacheEvent] = field(default_factory=list)
    warnings: list[TorchWarning] = field(default_factory=list)
    nested_seconds: float = 0.0  # of compilations inside this one, which have records of their own
    elapsed: float = 0.0

    @property
    def key(self) -> tuple[int, str]:
        return self.generation, self.call.id

    def begin_attempt(self) -> None:
        self.attempt_started = time.perf_counter()
        self.requests = Requests()  # what an abandoned attempt asked for guards nothing

    def end_attempt(self, result: object, raised: BaseException | None) -> None:
        if raised is None:
            # torch announces every changed number, also those it goes on to specialise
            symbolic = symbolic_sources(result)
            self.dynamic = [each for each in self.dynamic if any(_is_part(name, each.source) for name in symbolic)]
        seconds = time.perf_counter() - self.attempt_started
        outcome: AttemptOutcome = "committed"
        reason = None
        if raised is not None:
            restarts, reason = restart_reason(raised)
            outcome = "restarted" if restarts else "skipped" if is_skip(raised) else "failed"
        self.attempts.append(Attempt(len(self.attempts), outcome, seconds, reason))

    def note_break(self, found: RawBreak) -> None:
        self.breaks.append(graph_break(found, self.key, self.call_site, self.location))

    def note_event(self, found: RawCache | RawDynamic) -> None:
        if isinstance(found, RawCache):
            self.caches.append(
                CacheEvent(found.cache, found.result, self.generation, self.call.id, self.location, found.reason)
            )
            return
        line = user_location(tracing_stack(), self.call_site)
        self.dynamic.append(
            BecameDynamic(found.source, found.dim, found.first, found.second, self.generation, self.call.id, line)
        )

    def finish(self, ending: Ending) -> list[Record]:
        """Give the records of this compilation, in the order in which they make sense."""
        self.elapsed = time.perf_counter() - self.started
        seconds = max(0.0, self.elapsed - self.nested_seconds)
        nodes, guards = metrics.sizes(self.call.id)
        records: list[Record] = [*self.breaks, *self.dynamic, *self.caches, *self.warnings]
        if ending.outcome == "gave_up":
            limit = ending.limit or "recompile_limit"
            records.append(GaveUp(self.generation, self.call.id, self.location, limit, limit_value(limit)))
        if self.reasons:
            records.append(Recompile(self.generation, self.call.id, self.location, self.reasons, seconds, ending.outcome))
        records.append(
            Compile(
                self.generation,
                self.call.id,
                self.location,
                ending.outcome,
                seconds,
                tuple(self.attempts),
                self.clock.phases(seconds, self.nested_seconds),
                nodes,
                guards,
                self.call.backend,
                ending.reason,
                resumed_at(self.call.code),
                self.call_site,
                time.time() - self.elapsed,
            )
        )
        self.call = replace(self.call, locals={}, globals={})  # whoever still holds the scope must not hold the program's data
        return records

    def note_failure(self, raised: BaseException) -> None:
        """Under fullgraph torch raises what would break the graph instead of logging it."""
        if is_skip(raised):
            self.breaks.append(
                replace(
                    graph_break(read_break("", raised), self.key, self.call_site, self.location), resumable=False, fatal=True
                )
            )


def _is_part(name: str, source: str) -> bool:
    """Tell whether `name` is `source` or a part of it: `L['x'].size()[0]` of `L['x']`, but not `L['xy']`."""
    return name.startswith(source) and (len(name) == len(source) or name[len(source)] in ".[")


def graph_break(found: RawBreak, key: tuple[int, str], call_site: Location | None, function: Location) -> GraphBreak:
    """Make a record of a break; `function` stands in when torch gives no stack."""
    location = user_location(found.stack, call_site)
    return GraphBreak(
        location=named(location) if location is not None else function,
        chain=tuple(map(named, chain_of(found.stack))),
        block=enclosing_block(found.stack) if not found.resumable else None,
        reason=found.headline,
        kind=found.kind,
        explanation=found.explanation,
        hints=found.hints,
        callee=found.callee or _standard_module(found.stack),
        resumable=found.resumable,
        compiles=(key,),
    )


def _standard_module(stack: tuple[RawFrame, ...]) -> str | None:
    """Name the standard library's module in which it broke: `logging` has no callee of its own."""
    if not stack or owner_of_file(stack[-1].file)[0] != "python":
        return None
    folder, _, name = stack[-1].file.rpartition("/")
    return folder.rpartition("/")[2] if name == "__init__.py" else name.removesuffix(".py")


def function_location(call: CompileCall, call_site: Location | None) -> Location:
    """Give the first line of the function being compiled, or the line that calls it where torch wrote the function.

    A module's method is named after the module's own class: a library's wrapper or a base class says less.
    """
    code = call.code
    name = user_name(code.co_qualname)
    module = module_of(call)
    if module is not None:
        name = f"{type(module).__qualname__}.{name.rpartition('.')[2] if code.co_argcount else 'forward'}"
    if call.id.startswith("!"):
        name = "backward (compiled autograd)"
    owner, library = owner_of_file(code.co_filename)
    if owner != "user" and library is None and call_site is not None:
        return replace(call_site.own, function=name)
    caller = call_site.own if library is not None and call_site is not None else None
    return Location(code.co_filename, first_line(code), name, library=library, caller=caller)


class Generations:
    """Counts `torch._dynamo.reset()`: afterwards torch gives the same compile ids again.

    Nothing is patched for it: ids only grow between resets, so one that is not larger than before tells of a reset.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._current = 0
        self._last: dict[int, int] = {}  # frame number -> how often it was compiled
        self._newest = -1

    @property
    def current(self) -> int:
        return self._current

    def of(self, frame: int, nth: int) -> int:
        with self._lock:
            new_frame = frame not in self._last
            if (new_frame and nth == 0 and frame <= self._newest) or (not new_frame and nth <= self._last[frame]):
                self._current += 1
                self._last.clear()
                self._newest = -1
            self._last[frame] = nth
            self._newest = max(self._newest, frame)
            return self._current
