"""Callbacks on calls of the torch functions that dynx hooks: collect the events of a compilation, and emit its records."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import CodeType
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from dynx._bytecode.safe_read import described
from dynx._reading.user_location import call_site, owner_of_file
from dynx._torch.cache.guard_failures import recompile_call, refused_call
from dynx._torch.compilation.events import RawCache, backward_of, read_event
from dynx._torch.compilation.frame import compile_call, ending, guards_of, is_compiled_itself, raises_at_break, user_name
from dynx._torch.compilation.isa_checks import isa_call
from dynx._torch.compilation.messages import Messages
from dynx._torch.compilation.metrics import global_state
from dynx._torch.hooks import After, Before
from dynx._torch.retracing.retrace import frame_of
from dynx._torch.shapes.known_sizes import known_sizes, other_closure
from dynx._torch.side_effects.observers import OBSERVERS
from dynx._torch.tracing.graph_breaks import break_call, read_break
from dynx._torch.tracing.repeated import repeated_modules
from dynx._torch.tracing.translator import trace_id
from dynx._trace.cache_keys import CompiledKeys
from dynx._trace.compile_scope import CompileKey, Generations, Scope, beginning_of, function_location
from dynx._trace.dispatch import CompileEnd, EndListener, FrameDone, emit, notify, registered
from dynx._trace.guards.best_entry import best_first
from dynx._trace.guards.further_guards import further_reasons
from dynx._trace.guards.held_guards import without_failed_guard
from dynx._trace.guards.text import FailedEntry, parse_entry, parse_error
from dynx._trace.recompile_reason import EntryFacts, FrameKey, SeenValues, count_instances, explain, weak_self
from dynx._trace.source_names import in_words_of_the_user
from dynx.records import Backward, CacheEvent, Compile, GraphBreak, IsaCheck, Location, Reason, Recompile, Record, Skipped

R = TypeVar("R", bound=Record)


_in_progress = threading.local()  # per thread: `scopes`, and `backward` while a backward graph is compiled
_generations = Generations()
_facts: dict[CompileKey, EntryFacts] = {}
_facts_by_guards: WeakKeyDictionary[Any, EntryFacts] = WeakKeyDictionary()  # kept when nothing listens any more
_seen_values = SeenValues()
_compiled_keys = CompiledKeys()
_known_sizes: set[tuple[int, int, str, int | None]] = set()  # dynamic because of a profile: generation, frame, source, dim
_WHAT_IF = "what fixes would change"
REFUSED = "fail_on_recompile: torch.compiler.set_stance does not allow this recompile"


def facts_of(compile_id: str, guards: Any) -> EntryFacts | None:
    """Return what dynx recorded when the cache entry with this compile id or these guards was compiled; None if nothing."""
    return _facts.get(CompileKey(_generations.current, compile_id)) or _facts_by_guards.get(guards)


def generation() -> int:
    """Return the number of calls of `torch._dynamo.reset()` that were detected so far."""
    return _generations.current


def add_record(make: Callable[[int, str, Location | None], R], *, is_emitted: bool = True) -> R:
    """Return the record that `make` builds for the compilation in progress on this thread.

    `make` takes the number of Dynamo's resets, the compile id, and the function's location (None if there is no listener). With
    `is_emitted`, the record is emitted together with the compilation's other records.
    """
    scope = _scope()
    record = make(*scope.key, scope.location) if scope is not None else make(generation(), trace_id().compile_id, None)
    if scope is not None and is_emitted:
        scope.further.append(record)
    return record


def clear_facts() -> None:
    """Drop all data about cache entries that is kept to explain later recompiles."""
    _facts.clear()
    _seen_values.clear()
    _compiled_keys.clear()
    _known_sizes.clear()


def _scopes() -> list[Scope]:
    """Return a `Scope` (the data collected so far) for each compilation in progress on this thread, the innermost last."""
    scopes: list[Scope] = _in_progress.__dict__.setdefault("scopes", [])
    return scopes


def _scope() -> Scope | None:
    scopes = _scopes()
    return scopes[-1] if scopes else None


def _backward() -> tuple[str, float] | None:
    """Return the compile id and the start time of the backward graph that is being compiled on this thread, or None."""
    return _in_progress.__dict__.get("backward")


def _on_compile(args: tuple[Any, ...], kwargs: dict[str, Any]) -> After:
    call = compile_call(args, kwargs)
    site = call_site()
    scope = Scope(_generations.register(call.frame_number, call.nth), call, function_location(call, site), site)
    state = global_state()
    for callbacks in tuple(registered):
        if callbacks.on_start is not None:
            notify("progress", callbacks.on_start, call.id, scope.location)
    on_frames = _begin_frames(args, kwargs, scope)
    messages = Messages(scope.add_warning)
    scopes = _scopes()
    scopes.append(scope)

    def after(result: Any, raised: BaseException | None) -> None:
        messages.remove()
        scopes.remove(scope)
        raises = raised is not None and raises_at_break(raised, fullgraph=call.fullgraph)
        if raised is not None and raises:
            scope.add_fatal_break(raised)
        end = ending(result, raised, fullgraph=raises)
        if raised is not None and end.outcome == "failed":
            scope.add_failure(raised)
        if call.cache_key is not None:
            if all(reason.kind == "backend" for reason in scope.reasons):  # torch reports at most that the backend differs
                scope.reasons = _compiled_keys.changes(scope.generation, call.code, call.cache_key, site)
            _compiled_keys.add(scope.generation, call.code, call.cache_key, call.id)
        if end.outcome == "compiled" and any(callbacks.explains_recompiles for callbacks in registered):
            requests = scope.requests.by_name()
            values = described(requests, call.locals, call.globals)
            facts = EntryFacts(requests, state, call.backend, values, weak_self(call.locals))
            _add_facts(scope.key, facts)
            _facts_by_guards[guards_of(result)] = facts
        if on_ends := [callbacks.on_end for callbacks in registered if callbacks.on_end is not None]:
            _notify_end(on_ends, scope, result if end.outcome == "compiled" else None)
        records = scope.finish(end)
        if scopes:
            scopes[-1].nested_seconds += scope.elapsed
        for record in records:
            emit(record)
        for done in on_frames:
            notify(_WHAT_IF, done, records, guards_of(result) if end.outcome == "compiled" else None)

    return after


def _begin_frames(args: tuple[Any, ...], kwargs: dict[str, Any], scope: Scope) -> list[FrameDone]:
    """Call the listeners to frames; return the functions to call when the compilation has ended."""
    begun: list[FrameDone] = []
    for callbacks in tuple(registered):
        if callbacks.on_frame is not None and not _scopes():  # a compilation inside of another one is not a call of the user
            on_frame = callbacks.on_frame
            notify(_WHAT_IF, lambda frame, on_frame=on_frame: begun.append(on_frame(frame, *scope.key)), frame_of(args, kwargs))
    return begun


def _add_facts(key: CompileKey, facts: EntryFacts) -> None:
    """Store what is known about a new cache entry (`facts`), and drop the data about entries that a reset has removed."""
    for old in [old for old in _facts if old.generation < key.generation]:
        del _facts[old]
    _facts[key] = facts


def _notify_end(on_ends: Sequence[EndListener], scope: Scope, result: Any) -> None:
    guards = guards_of(result)
    call, requests = scope.call, scope.requests
    end = CompileEnd(
        *scope.key,
        scope.location,
        call.code,
        guards,
        requests.by_name(),
        call.globals,
        scope.reads,
        requests.of_values,
    )
    for on_end in on_ends:
        notify("guards and graph code", on_end, end)


def _on_attempt(args: tuple[Any, ...], kwargs: dict[str, Any]) -> After | None:
    scope = _scope()
    if scope is None:
        return None
    scope.begin_attempt()
    return scope.end_attempt


def _explained(
    failed: Sequence[FailedEntry],
    generation: int,
    code: CodeType,
    locals: Mapping[str, Any],
    globals: Mapping[str, Any],
    backend: str,
    site: Location | None,
) -> Sequence[Reason]:
    facts = [_facts.get(CompileKey(generation, entry.against)) for entry in failed]
    reasons = [explain(*pair, locals, globals, backend, site) for pair in zip(failed, facts, strict=True)]
    instances = count_instances(facts, locals)
    counted = [replace(reason, instances=instances) if reason.other_instance is not None else reason for reason in reasons]
    return in_words_of_the_user(counted, code, locals, globals)


def _on_recompile(args: tuple[Any, ...], kwargs: dict[str, Any]) -> After | None:
    scope, frame = _scope(), recompile_call(args, kwargs)
    if scope is None or frame is None:
        return None
    locals, globals = frame

    def after(result: Any, raised: BaseException | None) -> None:
        failed = tuple(map(parse_entry, result)) if raised is None else parse_error(str(raised))
        code, backend = scope.call.code, scope.call.backend
        reasons = _explained(failed, scope.generation, code, locals, globals, backend, scope.call_site)
        reasons = best_first(code, reasons, locals, globals)
        if reasons and all(reason.kind in ("other", "backend") for reason in reasons):  # torch 2.11 blames the backend
            held = without_failed_guard(scope.call, scope.call_site)
            reasons = (held,) if held is not None else reasons
        scope.reasons = _seen_values.new_values_first(FrameKey(scope.generation, scope.call.frame_number), reasons)
        if scope.reasons:

            def explained(text: str) -> Reason:
                (reason,) = _explained([parse_entry(text)], scope.generation, code, locals, globals, backend, scope.call_site)
                return reason

            scope.further_reasons = further_reasons(code, scope.reasons[0], locals, globals, explained)

    return after


def _on_refused(args: tuple[Any, ...], kwargs: dict[str, Any]) -> After:
    call, site, generation = refused_call(args, kwargs), call_site(), _generations.current

    def after(result: Any, raised: BaseException | None) -> None:
        failed = tuple(map(parse_entry, result)) if raised is None else ()
        if failed:
            reasons = _explained(failed, generation, call.code, call.locals, call.globals, call.backend, site)
            compile_id = f"{failed[0].against.partition('/')[0]}/{len(failed)}"  # of the recompile, if it were allowed
            location = beginning_of(call.code, user_name(call.code.co_qualname), site)
            emit(Recompile(generation, compile_id, location, tuple(reasons), outcome="refused"))
            emit(Compile(generation, compile_id, location, "failed", 0.0, reason=REFUSED, called_from=site, began=time.time()))

    return after


def _on_graph_break(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    scope, (reason, error) = _scope(), break_call(args, kwargs)
    if scope is not None and not getattr(error, "logged", False):
        scope.add_break(read_break(reason, error))


def _on_guard_added(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    scope = _scope()
    if scope is not None:
        scope.requests.add(args[1] if len(args) > 1 else kwargs["guard"])


def _on_event(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    scope, event = _scope(), read_event(args, kwargs)
    if event is None:
        return
    if scope is not None:
        scope.add_event(event)
    elif isinstance(event, RawCache) and (backward := _backward()):
        compile_id, _ = backward
        emit(CacheEvent(event.cache, event.result, _generation_of(compile_id), compile_id, None, event.reason))


def _on_dynamic_update(args: tuple[Any, ...], kwargs: dict[str, Any]) -> After | None:
    scope, (tx, source) = _scope(), args[:2]

    def after(result: Any, raised: BaseException | None) -> None:
        if scope is None or raised is not None:
            return
        for known in known_sizes(tx, source, result):
            key = scope.generation, scope.call.frame_number, known.source, known.dim
            scope.add_known(known, is_new=key not in _known_sizes)
            _known_sizes.add(key)
        if profile := other_closure(tx):
            scope.add_profile_miss(profile)

    return after if scope is not None else None


def _on_backward_start(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    if compile_id := backward_of(args):
        _in_progress.backward = compile_id, time.perf_counter()


def _on_backward_end(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    if backward := _backward():
        del _in_progress.backward
        compile_id, started = backward
        seconds = time.perf_counter() - started
        emit(Backward(_generation_of(compile_id), compile_id, seconds, time.time() - seconds))


def _generation_of(compile_id: str) -> int:
    """Return the generation (number of resets) of the latest compilation with this id; the current one if it is unknown."""
    return max((key.generation for key in _facts if key.compile_id == compile_id), default=_generations.current)


def _on_no_tensor(args: tuple[Any, ...], kwargs: dict[str, Any]) -> After | None:
    code = (args[0] if args else kwargs["frame"]).f_code

    def after(result: Any, raised: BaseException | None) -> None:
        if raised is None and not result:
            _emit_skipped(code, "no tensor among its arguments")

    return after if owner_of_file(code.co_filename).kind == "user" else None


def _on_skip(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    _, result, frame = args
    reason = result.skip_reason
    if result.guarded_code is None and reason is not None and not reason.startswith(_REPORTED_ELSEWHERE):
        _emit_skipped(frame.f_code, reason)


# skips that are recorded elsewhere, as a compilation or by the hook point `no_tensor`
_REPORTED_ELSEWHERE = (
    "no tensor-related objects",
    "an error was suppressed",
    "Dynamo decided to skip the frame while tracing",
    "compilation failed with a custom frame execution strategy",
)


def _emit_skipped(code: CodeType, reason: str) -> None:
    if owner_of_file(code.co_filename).kind == "user":
        emit(Skipped(beginning_of(code, user_name(code.co_qualname), None), reason))


def _on_generator(args: tuple[Any, ...], kwargs: dict[str, Any]) -> After | None:
    code = args[0] if args else kwargs["code"]

    def after(result: Any, raised: BaseException | None) -> None:
        if raised is None and result and is_compiled_itself(code):
            location = beginning_of(code, user_name(code.co_qualname), call_site())
            reason, kind = "torch.compile was put on a generator function", "Attempt to trace generator"
            emit(GraphBreak(location, (location,), reason, kind=kind, resumable=False))

    return after


def _on_backend(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
    if (scope := _scope()) is not None:
        scope.repeated = repeated_modules(args[1] if len(args) > 1 else kwargs["gm"])


def _on_isa_check(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> After:
    call, began = isa_call(args, kwargs), time.perf_counter()

    def end(result: Any, error: BaseException | None) -> None:
        emit(IsaCheck(call.instructions, time.perf_counter() - began, bool(result), call.is_skippable))

    return end


SUBSCRIBERS: dict[str, Before] = {
    **OBSERVERS,
    "compile": _on_compile,
    "attempt": _on_attempt,
    "recompile": _on_recompile,
    "refused": _on_refused,
    "graph_break": _on_graph_break,
    "guard_added": _on_guard_added,
    "event": _on_event,
    "isa_check": _on_isa_check,
    "backend": _on_backend,
    "dynamic_update": _on_dynamic_update,
    "backward_start": _on_backward_start,
    "backward_end": _on_backward_end,
    "no_tensor": _on_no_tensor,
    "skip": _on_skip,
    "generator": _on_generator,
}
