"""Find the cache entry that torch would run for a call, without running the function.

dynx starts the call and stops it early. Python binds the arguments, and torch's own lookup evaluates the guards, with the
callback, stance and `isolate_recompiles` region that the call would have. When a frame of the function or of its compiled code
starts, a Python profile function raises an exception, so that no instruction of the frame runs. If torch would compile the
frame, a callback of dynx is called instead of torch's, and raises too.

Torch: `_TorchDynamoContext`, which a compiled function closes over as `self`, `_callback_from_stance`, and the functions of
`torch._C._dynamo.eval_frame`; 2.11 has no regions.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import cache
from types import CodeType, FrameType, SimpleNamespace
from typing import Any, NamedTuple

from dynx._torch.cache.entries import entries_of
from dynx._torch.cache.entry import RawEntry
from dynx._torch.cache.entry_runs import free_profile_hook
from dynx._torch.cache.pinned import pinned_of
from dynx._torch.cache.quiescence import hold, register_reader
from dynx._torch.capabilities import require
from dynx._torch.compilation.unwrap import code_of
from dynx._torch.compilation.wrappers import cells_of


class Compiled(NamedTuple):
    """The parts of a function that torch.compile returned: the wrapped function, its code, and its `_TorchDynamoContext`."""

    fn: Any  # the function that it calls while the callback is set
    code: CodeType  # of the frame that torch looks up in the cache
    context: Any  # `_TorchDynamoContext`


class Missed(NamedTuple):
    """A call for which torch would run no cache entry, and what torch would do instead; it keeps the call's locals alive."""

    locals: Mapping[str, Any]
    globals: Mapping[str, Any]
    backend: Any
    entries: list[RawEntry]  # the entries that torch checked
    has_tensor: bool
    limit: str | None  # name of the limit that another compilation would exceed
    limit_raises: bool  # whether torch would raise at that limit, instead of running the function eagerly
    reaches_compiler: bool  # whether torch would call its compiler
    stance: str
    skipped: str | None  # why torch skips the frame before it looks for tensors


class LookupResult(NamedTuple):
    """The result of `look_up`: the cache entry that torch would run; else the result of `on_miss`, or why Dynamo is off."""

    entry: RawEntry | None
    miss: Any = None
    off: str | None = None


class _Stop(BaseException):
    """Exception that stops a frame before its first instruction."""


def compiled_parts(compiled: Any) -> Compiled | None:
    """Return the parts of a function that torch.compile returned; None for any other object, or if it wraps no Python code."""
    cells = cells_of(compiled)
    if not {"self", "fn", "callback"} <= cells.keys():
        return None
    fn = cells["fn"].cell_contents
    code = code_of(fn)
    return None if code is None else Compiled(fn, code, cells["self"].cell_contents)


def look_up(
    compiled: Compiled, args: tuple[Any, ...], kwargs: dict[str, Any], on_miss: Callable[[Missed], Any]
) -> LookupResult:
    """Return which cache entry torch would run for a call, or what `on_miss` returns for a call without such an entry.

    Raises TypeError if the arguments do not fit the function.
    """
    hold()
    _require_lookup()
    from torch._C._dynamo import eval_frame
    from torch._dynamo.eval_frame import (
        _callback_from_stance,
        _debug_get_cache_entry_list,
        _is_skip_guard_eval_unsafe_stance,
        skip_code,
    )

    callback = _callback_from_stance(compiled.context.callback)
    if callback is None:
        return LookupResult(None, off=f"the stance {_stance()!r}")
    watched = {id(cached.code) for cached in _debug_get_cache_entry_list(compiled.code)}
    watched.add(id(compiled.code))
    watched.update(id(entry.compiled) for entry in pinned_of(compiled.code))
    stopped: list[tuple[CodeType, dict[str, Any], dict[str, Any]]] = []  # torch's frame object itself must not be kept

    def stop_at_first_instruction(frame: FrameType, event: str, argument: Any) -> None:
        if event == "call" and id(frame.f_code) in watched:
            stopped.append((frame.f_code, frame.f_locals, frame.f_globals))  # no calls: Dynamo would look up their frames
            raise _Stop

    skip_code(stop_at_first_instruction.__code__)
    get, put = free_profile_hook()
    stub = _CompilerStub(compiled, callback, on_miss, put)
    set_region = getattr(eval_frame, "set_eval_frame_isolate_recompiles_id", None)
    # as little as possible from here on, since every frame calls the profile function
    prior = eval_frame.set_eval_frame(None)
    unsafe = eval_frame.set_skip_guard_eval_unsafe(_is_skip_guard_eval_unsafe_stance())
    region = set_region(compiled.context._isolate_recompiles_id) if set_region is not None else None
    observer = get()
    try:
        put(stop_at_first_instruction)
        eval_frame.set_eval_frame(stub if callback is not False else False)
        compiled.fn(*args, **kwargs)
    except _Stop:
        pass
    finally:
        put(observer)
        eval_frame.set_eval_frame(None)
        if set_region is not None:
            set_region(region)
        eval_frame.set_skip_guard_eval_unsafe(unsafe)
        eval_frame.set_eval_frame(prior)
    if not stopped:
        return LookupResult(None, stub.result)
    code, locals, globals = stopped.pop()
    entry = next((entry for entry in entries_of(compiled.code) if entry.compiled is code), None)
    if entry is not None:
        return LookupResult(entry)
    frame = SimpleNamespace(f_code=code, f_locals=locals, f_globals=globals)
    return LookupResult(None, on_miss(_missed(frame, compiled, callback, reaches_compiler=False)))


register_reader(look_up)


@cache  # a lookup should take microseconds
def _require_lookup() -> None:
    require("set_eval_frame", "set_skip_guards", "stance", "stance_callback", "skip_guards", "skip_code", "frame_return")
    require("convert_frame", "cache_size", "cache_entries", "recompile_limit", "accumulated_limit", "fail_on_limit")


def _stance() -> str:
    from torch._dynamo import eval_frame

    return str(eval_frame._stance.stance)


class _CompilerStub:
    """A substitute for torch's compile callback that stops the lookup where torch would compile the frame."""

    def __init__(
        self, compiled: Compiled, callback: Any, on_miss: Callable[[Missed], Any], put: Callable[[None], None]
    ) -> None:
        self._torchdynamo_orig_backend = callback  # which torch compares with the backends of entries
        self._compiled, self._on_miss, self._put_observer = compiled, on_miss, put
        self.result: Any = None

    def __call__(self, frame: Any, *_: Any) -> Any:
        from torch._dynamo.types import ConvertFrameReturn

        if frame.f_code is not self._compiled.code:
            return ConvertFrameReturn(apply_to_code=False)
        self._put_observer(None)  # the lookup has ended
        self.result = self._on_miss(_missed(frame, self._compiled, self._torchdynamo_orig_backend, reaches_compiler=True))
        raise _Stop


def _missed(frame: Any, compiled: Compiled, callback: Any, *, reaches_compiler: bool) -> Missed:
    from torch._dynamo import config, convert_frame
    from torch._dynamo.eval_frame import innermost_backend

    region = getattr(compiled.context, "_isolate_recompiles_id", -1)
    entries = [entry for entry in entries_of(compiled.code) if entry.region in (region, -1)]
    has_tensor = inspect.unwrap(convert_frame.has_tensor_in_frame)(frame)
    limit = _limit_exceeded(frame, compiled, entries)
    backend = innermost_backend(callback or compiled.context.callback)
    raises = bool(config.fail_on_recompile_limit_hit or compiled.context.fullgraph)
    skipped = _why_skipped(frame.f_code)
    return Missed(
        frame.f_locals, frame.f_globals, backend, entries, has_tensor, limit, raises, reaches_compiler, _stance(), skipped
    )


def _why_skipped(code: CodeType) -> str | None:
    """Return why torch skips a frame: due to a setting, an active mode or the frame's file; None if none of these applies.

    Torch: the conditions of `CatchErrorsWrapper.__call__`.
    """
    from torch._dynamo import config, trace_rules
    from torch.utils import _python_dispatch

    if config.disable:
        return "torch._dynamo.config.disable is set"
    if config.inline_torch_dispatch_torch_compile:
        is_in_mode = _python_dispatch.any_torch_dispatch_mode_on_stack()
    else:
        is_in_mode = _python_dispatch.is_in_any_mode_without_ignore_compile_internals()
    if is_in_mode:
        return "a TorchDispatchMode is active: torch does not compile under it"
    return "torch does not compile code of this file" if trace_rules.check(code) else None


def _limit_exceeded(frame: Any, compiled: Compiled, entries: list[RawEntry]) -> str | None:
    """Return the name of the recompile limit that one more compilation of the function would exceed; None if there is none.

    Torch: `cache_size.compute_cache_size`, whose parameters differ in 2.11.
    """
    from torch._dynamo import cache_size, config
    from torch._dynamo.eval_frame import _debug_get_cache_entry_list

    raw = _debug_get_cache_entry_list(compiled.code)
    if "cache_entry" in inspect.signature(cache_size.compute_cache_size).parameters:  # 2.11: the first of a linked list
        size = cache_size.compute_cache_size(frame, raw[0] if raw else None)
    else:
        region = compiled.context._isolate_recompiles_id
        in_region = [cached for cached in raw if cached.isolate_recompiles_id == region]
        size = cache_size.compute_cache_size(frame, in_region, len(raw))
    compilations = max((int(entry.compile_id.rpartition("/")[2]) + 1 for entry in entries), default=0)
    if size.will_compilation_exceed_accumulated_limit() or compilations >= config.accumulated_recompile_limit:
        return "accumulated_recompile_limit"
    limit = _limit_of(compiled.context) or config.recompile_limit
    return "recompile_limit" if size.will_compilation_exceed_specific_limit(limit) else None


def _limit_of(context: Any) -> int | None:
    """Return the recompile limit set only for the function of this `_TorchDynamoContext`; None if none was set."""
    callback = context.callback
    while callback is not None:
        limit = getattr(callback, "_recompile_limit", None) or getattr(callback, "dynx_recompile_limit", None)
        if limit is not None:
            return int(limit)
        callback = getattr(callback, "_torchdynamo_orig_backend", None)
    return None
