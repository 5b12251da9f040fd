"""`Scope`: collects everything that happens during one compilation, and turns it into records when the compilation ends."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field, replace
from types import CodeType
from typing import NamedTuple

from dynx._reading.qualname import enclosing_block
from dynx._reading.user_location import chain_of, code_at, first_line, named, owner_of_file, user_location, uses_at
from dynx._torch.compilation import metrics
from dynx._torch.compilation.events import RawCache, RawDynamic
from dynx._torch.compilation.frame import (
    CompileCall,
    Ending,
    is_skip,
    limit_value,
    module_of,
    raises_at_break,
    restart_reason,
    resumed_at,
    symbolic_sources,
    user_name,
)
from dynx._torch.shapes.known_sizes import RawKnown
from dynx._torch.side_effects.frame_effects import RawFrameEffects, frames_of
from dynx._torch.tracing.attempt import specialized_sources, stack_of_failure
from dynx._torch.tracing.graph_breaks import RawBreak, read_break
from dynx._torch.tracing.repeated import RawRepeated
from dynx._torch.tracing.stack import RawFrame, tracing_stack
from dynx._torch.unguarded.read import Read
from dynx._torch.unguarded.recording import reads_of_attempt
from dynx._trace.effect_records import frame_record
from dynx._trace.guards.of_captures import is_captured
from dynx._trace.guards.requests import Requests
from dynx._trace.repeated import repeated_record
from dynx.records import (
    Attempt,
    BecameDynamic,
    CacheEvent,
    Compile,
    GaveUp,
    GraphBreak,
    Location,
    ProfileMiss,
    Reason,
    Recompile,
    Record,
    Specialized,
    TorchWarning,
)
from dynx.records.compile import AttemptOutcome


class CompileKey(NamedTuple):
    """A key that identifies a compilation within a process: its compile id, such as `0/1`, and its generation.

    Compile ids repeat after `torch._dynamo.reset()`, which begins a new generation.
    """

    generation: int
    compile_id: str


@dataclass
class Scope:
    """What is known about a compilation in progress. Each thread has a stack of scopes, as compilations can be nested."""

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
    further_reasons: tuple[Reason, ...] = ()  # other failed guards of the entry of the first reason
    breaks: list[GraphBreak] = field(default_factory=list)
    dynamic: list[BecameDynamic] = field(default_factory=list)
    specialized: list[Specialized] = field(default_factory=list)
    profiles: dict[str, str] = field(default_factory=dict)  # by source of a symbol: the profile that made it symbolic
    profile_misses: list[ProfileMiss] = field(default_factory=list)
    caches: list[CacheEvent] = field(default_factory=list)
    warnings: list[TorchWarning] = field(default_factory=list)
    further: list[Record] = field(default_factory=list)  # of other features, such as saved tensors
    effects: tuple[RawFrameEffects, ...] = ()  # of the attempt that was committed
    reads: tuple[Read, ...] = ()  # of the same attempt
    repeated: RawRepeated | None = None  # of the graph that was compiled
    failed_at: Location | None = None  # the line of a failure, if torch names it
    nested_seconds: float = 0.0  # of compilations started by this compilation, which have their own records
    elapsed: float = 0.0

    @property
    def key(self) -> CompileKey:
        return CompileKey(self.generation, self.call.id)

    def begin_attempt(self) -> None:
        self.attempt_started = time.perf_counter()
        self.requests = Requests()  # a discarded attempt installs no guards

    def end_attempt(self, result: object, raised: BaseException | None) -> None:
        """Record the tracing attempt that has just ended: torch's `trace_frame` returned `result`, or raised `raised`."""
        if raised is None:
            # torch reports every changed number as dynamic, including numbers that it specializes later in the attempt
            symbolic, fixed = symbolic_sources(result), specialized_sources(result)
            self.dynamic = [
                change
                for change in self.dynamic
                if any(_is_part(name, change.source) for name in symbolic) and _symbol_source(change) not in fixed
            ]
            self.specialized = [self._specialized(source, stack) for source, stack in fixed.items()]
            self.effects = frames_of(result)
            self.reads = reads_of_attempt(result)
        seconds = time.perf_counter() - self.attempt_started
        outcome: AttemptOutcome = "committed"
        reason = None
        if raised is not None:
            restarts, reason = restart_reason(raised)
            raises = raises_at_break(raised, fullgraph=self.call.fullgraph)
            outcome = "restarted" if restarts else "skipped" if is_skip(raised) and not raises else "failed"
        self.attempts.append(Attempt(len(self.attempts), outcome, seconds, reason))

    def _specialized(self, source: str, stack: tuple[RawFrame, ...]) -> Specialized:
        line = user_location(stack, self.call_site)
        place = named(line) if line is not None else None
        return Specialized(source, *self.key, place, code_at(line), self.profiles.get(source))

    def add_break(self, raw: RawBreak) -> None:
        self.breaks.append(graph_break(raw, self.key, self.call_site, self.location))

    def add_fatal_break(self, raised: BaseException) -> None:
        """Add the graph break at which a `fullgraph=True` compilation failed: torch raises `raised` and does not log it."""
        if is_skip(raised):
            record = graph_break(read_break("", raised), self.key, self.call_site, self.location)
            self.breaks.append(replace(record, resumable=False, fatal=True))

    def add_failure(self, raised: BaseException) -> None:
        """Set the line at which the compilation failed with the exception `raised`."""
        stack = stack_of_failure(raised)
        self.failed_at = user_location(stack, self.call_site) if stack else None

    def add_event(self, raw: RawCache | RawDynamic) -> None:
        """Add the record of a lookup in a compile cache on disk, or of a size or number that became dynamic."""
        if isinstance(raw, RawCache):
            self.caches.append(CacheEvent(raw.cache, raw.result, *self.key, self.location, raw.reason))
        else:
            self.dynamic.append(BecameDynamic(raw.source, raw.dim, raw.first, raw.second, *self.key, self._traced_line()))

    def add_warning(self, text: str, origin: str) -> None:
        self.warnings.append(TorchWarning(text, origin, self._traced_line()))

    def add_known(self, raw: RawKnown, *, is_new: bool) -> None:
        """Store which PGO profile made a size or number symbolic; if this is new (`is_new`), add a `BecameDynamic` record."""
        dim = "scalar" if raw.dim is None else f"size {raw.dim}"
        values = raw.values or ("", "")
        change = BecameDynamic(raw.source, dim, *values, *self.key, self._traced_line(), raw.profile, raw.run)
        self.profiles[_symbol_source(change)] = raw.profile
        if is_new:
            self.dynamic.append(change)

    def add_profile_miss(self, profile: str) -> None:
        """Record, at most once, that a PGO profile is not used because it has another hash of this function's closure."""
        if not self.profile_misses:
            self.profile_misses.append(ProfileMiss(profile, *self.key, self.location))

    def _traced_line(self) -> Location | None:
        return user_location(tracing_stack(), self.call_site)

    def finish(self, ending: Ending) -> list[Record]:
        """Close the scope and return its records: graph breaks and other events, then `GaveUp`, `Recompile` and `Compile`."""
        self.elapsed = time.perf_counter() - self.started
        seconds = max(0.0, self.elapsed - self.nested_seconds)
        nodes, guards = metrics.sizes(self.call.id)
        resumed = resumed_at(self.call.code)
        called_from = self.call_site if resumed is None else None  # torch calls a resume function
        at_break = replace(self.location, line=resumed) if resumed is not None else None
        records: list[Record] = [*self.breaks, *self.dynamic, *self.profile_misses, *self.specialized, *self.caches]
        records += [*self.warnings, *self.further]
        if ending.outcome == "compiled":  # a function that is skipped runs eagerly
            records += [frame_record(raw, *self.key, self.location, self.call_site) for raw in self.effects]
        if ending.limit is not None:
            allowed, fatal = limit_value(ending.limit), ending.outcome == "failed"
            records.append(GaveUp(*self.key, self.location, ending.limit, allowed, called_from, fatal))
        if self.reasons:
            records.append(Recompile(*self.key, self.location, self.reasons, seconds, ending.outcome, self.further_reasons))
        records.append(
            Compile(
                *self.key,
                self.location,
                ending.outcome,
                seconds,
                tuple(self.attempts),
                self.clock.phases(seconds, self.nested_seconds),
                nodes,
                guards,
                self.call.backend,
                ending.reason,
                resumed,
                called_from,
                time.time() - self.elapsed,
                named(self.failed_at) if self.failed_at is not None else None,
                code_at(self.failed_at or at_break),
                automatic_dynamic=self.call.automatic_dynamic,
                of_dynx=getattr(self.call.cache_key, "of_dynx", False),
                repeated=repeated_record(self.repeated, self.requests.by_name(), self.call) if self.repeated else None,
            )
        )
        self.call = replace(self.call, locals={}, globals={})  # a reference to the scope must not keep the program's data alive
        return records


def _is_part(name: str, source: str) -> bool:
    """Return whether source `name` is `source` or reached through it: `L['x'].size()[0]` is reached through `L['x']`."""
    return name.startswith(source) and (len(name) == len(source) or name[len(source)] in ".[")


def _symbol_source(change: BecameDynamic) -> str:
    """Return the source of a size, stride or number that became symbolic: `L['x'].size()[0]`."""
    kind, _, dim = change.dim.partition(" ")
    return f"{change.source}.{kind}()[{dim}]" if dim else change.source


def graph_break(raw: RawBreak, key: CompileKey, call_site: Location | None, function: Location) -> GraphBreak:
    """Build the record of a graph break; its location is the compiled function (`function`) if torch has no stack for it."""
    location = user_location(raw.stack, call_site)
    return GraphBreak(
        location=named(location) if location is not None else function,
        chain=tuple(map(named, chain_of(raw.stack))),
        block=enclosing_block(raw.stack) if not raw.resumable else None,
        reason=raw.headline,
        kind=raw.kind,
        explanation=raw.explanation,
        hints=raw.hints,
        page=raw.page,
        callee=raw.callee or _standard_module(raw.stack),
        code=code_at(location if location is not None else function),
        code_of_library=code_at(replace(location, library=None)) if location is not None and location.library else "",
        uses=uses_at(location),
        resumable=raw.resumable,
        compiled_autograd=raw.compiled_autograd,
        captures_backward=raw.captures_backward,
        compiles=((key.generation, key.compile_id),),  # a plain tuple, as part of a record
    )


def _standard_module(stack: tuple[RawFrame, ...]) -> str | None:
    """Return the standard-library module in which a graph break happened, such as `logging`; None if it happened elsewhere.

    The name is used if torch does not name the function whose call broke the graph.
    """
    if not stack or owner_of_file(stack[-1].file).kind != "python":
        return None
    folder, _, name = stack[-1].file.rpartition("/")
    return folder.rpartition("/")[2] if name == "__init__.py" else name.removesuffix(".py")


def function_location(call: CompileCall, call_site: Location | None) -> Location:
    """Return the first line of the function being compiled, or the line that calls it if the function belongs to torch.

    A method of an nn.Module is named after the class of the instance, not after a base class or a library's wrapper.
    """
    code = call.code
    name = user_name(code.co_qualname)
    module = module_of(call)
    if module is not None:
        name = f"{type(module).__qualname__}.{name.rpartition('.')[2] if code.co_argcount else 'forward'}"
    if is_captured(call.id, code):
        name = "backward (compiled autograd)"
    owner, library = owner_of_file(code.co_filename)
    if owner != "user" and library is None and call_site is not None:
        return replace(call_site.own, function=name)
    return beginning_of(code, name, call_site)


def beginning_of(code: CodeType, name: str, call_site: Location | None) -> Location:
    """Return the location of the first line of a function; if a library defines it, add its caller, `call_site`."""
    library = owner_of_file(code.co_filename).library
    caller = call_site.own if library is not None and call_site is not None else None
    return Location(code.co_filename, first_line(code), name, library=library, caller=caller)


class Generations:
    """A counter of the calls of `torch._dynamo.reset()`; the compilations between two of these calls are a generation.

    `reset` is not patched: compile ids only grow until a reset, so an id that did not grow means that there was a reset.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.current = 0
        self._last: dict[int, int] = {}  # by frame number: the number of its last compilation
        self._newest = -1

    def register(self, frame: int, nth: int) -> int:
        """Register the start of the compilation with id `frame/nth`, and return its generation."""
        with self._lock:
            new_frame = frame not in self._last
            if (new_frame and nth == 0 and frame <= self._newest) or (not new_frame and nth <= self._last[frame]):
                self.current += 1
                self._last.clear()
                self._newest = -1
            self._last[frame] = nth
            self._newest = max(self._newest, frame)
            return self.current
