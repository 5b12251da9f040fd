"""What the bus does at each hook point of torch: collect what belongs to one compilation, emit its records when it ends."""

from __future__ import annotations

import threading
import time
from typing import Any

from dynx._torch.cache.entries import guards_of_result
from dynx._torch.cache.guard_failures import recompile_call
from dynx._torch.compilation.events import RawCache, backward_of, read_event
from dynx._torch.compilation.frame import compile_call, ending, is_compiled_itself, user_name
from dynx._torch.compilation.messages import listen_to_messages
from dynx._torch.compilation.metrics import global_state
from dynx._torch.hooks import After, Before
from dynx._torch.tracing.graph_breaks import read_break
from dynx._trace.cache_keys import CompiledFor
from dynx._trace.compile_scope import Generations, Scope, function_location
from dynx._trace.dispatch import CompileEnd, Starting, emit, end_listeners, start_listeners
from dynx._trace.guard_requests import short_source
from dynx._trace.guard_text import parse_entry, parse_error
from dynx._trace.recompile_reason import EntryFacts, SeenValues, explain
from dynx._trace.safe_read import objects
from dynx._trace.user_location import call_site, first_line, owner_of_file, user_location
from dynx.records import Backward, CacheEvent, GraphBreak, Location, Skipped, TorchWarning, Trouble

_under_way = threading.local()
_generations = Generations()
_facts: dict[tuple[int, str], EntryFacts] = {}
_history = SeenValues()
_compiled_for = CompiledFor()


def facts_of(compile_id: str) -> EntryFacts | None:
    """Give what was known when an entry was compiled; None where nobody listened."""
    return _facts.get((_generations.current, compile_id))


def generation() -> int:
    """Count the resets of torch that were noticed so far."""
    return _generations.current


def forget() -> None:
    """Drop what explains later recompiles."""
    _facts.clear()
    _history.clear()
    _compiled_for.clear()


def _scopes() -> list[Scope]:
    scopes: list[Scope] = _under_way.__dict__.setdefault("scopes", [])
    return scopes


def _scope() -> Scope | None:
    scopes = _scopes()
    return scopes[-1] if scopes else None


def _on_compile(args: tuple[Any, ...], kwargs: dict[str, Any]) -> After:
    call = compile_call(args, kwargs)
    site = call_site()
    scope = Scope(_generations.of(call.frame_number, call.nth), call, function_location(call, site), site)
    state = global_state()
    for start in tuple(start_listeners):
        _notify_start(start, call.id, scope.location)
    messages = listen_to_messages(lambda text, origin: scope.warnings.append(TorchWarning(text, origin, _here(scope))))
    scopes = _scopes()
    scopes.append(scope)

    def after(result: Any, raised: BaseException | None) -> None:
        messages.remove()
        scopes.remove(scope)
        if raised is not None and call.fullgraph:
            scope.note_failure(raised)
        end = ending(result, raised, fullgraph=call.fullgraph)
        if call.cache_key is not None:
            if all(each.kind == "backend" for each in scope.reasons):  # torch sees no more than another backend, if anything
                scope.reasons = _compiled_for.changes(scope.generation, call.code, call.cache_key, site)
            _compiled_for.remember(scope.generation, call.code, call.cache_key, call.id)
        if end.outcome == "compiled":
            requests = scope.requests.named()
            seen = {short_source(name): text for name, text in objects(requests, call.locals, call.globals).items()}
            _remember(scope.key, EntryFacts(requests, state, call.backend, seen))
        if end_listeners:
            _notify_end(scope, result if end.outcome == "compiled" else None)
        records = scope.finish(end)
        if scopes:
            scopes[-1].nested_seconds += scope.elapsed
        for record in records:
            emit(record)

    return after


def _remember(key: tuple[int, str], facts: EntryFacts) -> None:
    """Keep what explains a later recompile; what was compiled before a reset cannot recompile any more."""
    for old in [known for known in _facts if known[0] < key[0]]:
        del _facts[old]
    _facts[key] = facts


def _notify_start(start: Starting, compile_id: str, location: Location) -> None:
    try:
        start(compile_id, location)
    except Exception as error:  # noqa: BLE001 - who shows progress must not stop it
        emit(Trouble("progress", f"{type(error).__name__}: {error}"))


def _notify_end(scope: Scope, result: Any) -> None:
    guards = guards_of_result(result)
    end = CompileEnd(*scope.key, scope.location, scope.call.code, guards, scope.requests.named())
    for ended in tuple(end_listeners):
        try:
            ended(end)
        except Exception as error:  # noqa: BLE001 - an observer that fails must not fail the program
            emit(Trouble("guards and graph code", f"{type(error).__name__}: {error}"))


def _here(scope: Scope) -> Location | None:
    from dynx._torch.tracing.stack import tracing_stack

    return user_location(tracing_stack(), scope.call_site)


def _on_attempt(args: tuple[Any, ...], kwargs: dict[str, Any]) -> After | None:
    scope = _scope()
    if scope is None:
        return None
    scope.begin_attempt()
    return scope.end_attempt


def _on_recompile(args: tuple[Any, ...], kwargs: dict[str, Any]) -> After | None:
    scope, frame = _scope(), recompile_call(args, kwargs)
    if scope is None or frame is None:
        return None
    locals, globals = frame

    def after(result: Any, raised: BaseException | None) -> None:
        failed = tuple(map(parse_entry, result)) if raised is None else parse_error(str(raised))
        facts = {entry.against: _facts.get((scope.generation, entry.against)) for entry in failed}
        reasons = [
            explain(entry, facts[entry.against], locals, globals, scope.call.backend, scope.call_site) for entry in failed
        ]
        scope.reasons = _history.most_telling_first((scope.generation, scope.call.frame_number), reasons)

    return after


def _on_graph_break(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    given = dict(zip(("self", "code_options", "reason", "exc"), args, strict=False)) | kwargs
    scope = _scope()
    if scope is not None and not getattr(given["exc"], "logged", False):
        scope.note_break(read_break(given["reason"], given["exc"]))


def _on_guard_added(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    scope = _scope()
    if scope is not None:
        scope.requests.add(args[1] if len(args) > 1 else kwargs["guard"])


def _on_event(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    scope, found = _scope(), read_event(args, kwargs)
    if found is None:
        return
    if scope is not None:
        scope.note_event(found)
    elif isinstance(found, RawCache) and (backward := _under_way.__dict__.get("backward")):
        emit(CacheEvent(found.cache, found.result, _generation_of(backward[0]), backward[0], None, found.reason))


def _on_backward_start(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    if compile_id := backward_of(args):
        _under_way.backward = compile_id, time.perf_counter()


def _on_backward_end(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    backward = _under_way.__dict__.pop("backward", None)
    if backward is not None:
        seconds = time.perf_counter() - backward[1]
        emit(Backward(_generation_of(backward[0]), backward[0], seconds, time.time() - seconds))


def _generation_of(compile_id: str) -> int:
    """Give the generation in which the forward was compiled; a reset may have come between."""
    return max((generation for generation, known in _facts if known == compile_id), default=_generations.current)


def _on_no_tensor(args: tuple[Any, ...], kwargs: dict[str, Any]) -> After | None:
    code = (args[0] if args else kwargs["frame"]).f_code

    def after(result: Any, raised: BaseException | None) -> None:
        if raised is None and not result:
            _skipped(code, "no tensor among its arguments")

    return after if owner_of_file(code.co_filename)[0] == "user" else None


def _on_skip(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    _, result, frame = args
    reason = result.skip_reason
    if result.guarded_code is None and reason is not None and not reason.startswith(_TOLD_ELSEWHERE):
        _skipped(frame.f_code, reason)


# these come with a record of their own, or with one of `no_tensor`
_TOLD_ELSEWHERE = (
    "no tensor-related objects",
    "an error was suppressed",
    "Dynamo decided to skip the frame while tracing",
    "compilation failed with a custom frame execution strategy",
)


def _skipped(code: Any, reason: str) -> None:
    if owner_of_file(code.co_filename)[0] == "user":
        location = Location(code.co_filename, first_line(code), user_name(code.co_qualname))
        emit(Skipped(location, reason))


def _on_generator(args: tuple[Any, ...], kwargs: dict[str, Any]) -> After | None:
    code = args[0] if args else kwargs["code"]

    def after(result: Any, raised: BaseException | None) -> None:
        if raised is None and result and is_compiled_itself(code):
            site = call_site()
            library = owner_of_file(code.co_filename)[1]
            location = Location(
                code.co_filename,
                first_line(code),
                code.co_qualname,
                library=library,
                caller=site.own if library and site else None,
            )
            emit(
                GraphBreak(
                    location,
                    (location,),
                    "torch.compile was put on a generator function",
                    kind="Attempt to trace generator",
                    resumable=False,
                )
            )

    return after


SUBSCRIBERS: dict[str, Before] = {
    "compile": _on_compile,
    "attempt": _on_attempt,
    "recompile": _on_recompile,
    "graph_break": _on_graph_break,
    "guard_added": _on_guard_added,
    "event": _on_event,
    "backward_start": _on_backward_start,
    "backward_end": _on_backward_end,
    "no_tensor": _on_no_tensor,
    "skip": _on_skip,
    "generator": _on_generator,
}
