"""Ask torch's cache about a call, and stop before anything runs.

The call is really made: Python binds the arguments and torch's own lookup evaluates the guards, with the callback, region and
stance that the call would have. The frame that comes of it, of the function or of compiled code, is ended by a profile function
before its first instruction; where torch would compile, it calls a callback that ends it too.

Torch: `_TorchDynamoContext`, which a compiled function closes over as `self`, `_callback_from_stance`, and the functions of
`torch._C._dynamo.eval_frame`; alike in 2.11, 2.13 and 2.15, without regions in 2.11.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from types import CodeType, FrameType
from typing import Any, NamedTuple

from dynx._torch.cache.entries import entries_of
from dynx._torch.cache.entry import RawEntry
from dynx._torch.cache.pinned import pinned_of
from dynx._torch.cache.profile_hook import free_observer
from dynx._torch.cache.quiescence import register_reader
from dynx._torch.compilation.unwrap import code_of


class Compiled(NamedTuple):
    """What torch.compile made of a function."""

    fn: Any  # what it calls under its callback
    code: CodeType  # of the frame that torch looks up
    context: Any  # `_TorchDynamoContext`


class Missed(NamedTuple):
    """The frame of a call that no entry fits, or that torch does not look up; holds what lives only during the call."""

    locals: Mapping[str, Any]
    globals: Mapping[str, Any]
    backend: Any
    entries: list[RawEntry]  # that torch asked
    has_tensor: bool
    limit: str | None  # name of the limit that another compilation would exceed
    limit_raises: bool  # instead of running the function eagerly
    was_asked: bool  # whether torch would ask its compiler
    stance: str


class Seen(NamedTuple):
    """What torch would do: run an entry, or what `on_miss` says of it; neither where `off` says what switches torch off."""

    entry: RawEntry | None
    miss: Any = None
    off: str | None = None


class _Begun(NamedTuple):
    """A frame that was about to run; torch's frames are not to be kept."""

    f_code: CodeType
    f_locals: Mapping[str, Any]
    f_globals: Mapping[str, Any]


class _Stop(BaseException):
    """Ends the frame that is about to run."""


def compiled_parts(compiled: Any) -> Compiled | None:
    """Take apart what `torch.compile` made; None for anything else, and for what runs through code that is not Python."""
    cells = dict(zip(compiled.__code__.co_freevars, compiled.__closure__ or (), strict=True)) if _is_function(compiled) else {}
    if "self" not in cells or "fn" not in cells or "callback" not in cells:
        return None
    fn = cells["fn"].cell_contents
    code = code_of(fn)
    return None if code is None else Compiled(fn, code, cells["self"].cell_contents)


def _is_function(value: Any) -> bool:
    return isinstance(getattr(value, "__code__", None), CodeType)


def look_up(compiled: Compiled, args: tuple[Any, ...], kwargs: dict[str, Any], on_miss: Callable[[Missed], Any]) -> Seen:
    """Find what torch would do with a call. Raises TypeError where the arguments do not fit the function."""
    from torch._C._dynamo import eval_frame
    from torch._dynamo.eval_frame import (
        _callback_from_stance,
        _debug_get_cache_entry_list,
        _is_skip_guard_eval_unsafe_stance,
        skip_code,
    )

    callback = _callback_from_stance(compiled.context.callback)
    if callback is None:
        return Seen(None, off=f"the stance {_stance()!r}")
    watched = {id(each.code) for each in _debug_get_cache_entry_list(compiled.code)}
    watched.add(id(compiled.code))
    watched.update(id(each.compiled) for each in pinned_of(compiled.code))
    begun: list[tuple[CodeType, dict[str, Any], dict[str, Any]]] = []

    def end_at_first_instruction(frame: FrameType, event: str, argument: Any) -> None:
        if event == "call" and id(frame.f_code) in watched:
            begun.append((frame.f_code, frame.f_locals, frame.f_globals))  # a function called here would be looked up too
            raise _Stop

    skip_code(end_at_first_instruction.__code__)
    get, put = free_observer()
    canary = _Canary(compiled, callback, on_miss, put)
    set_region = getattr(eval_frame, "set_eval_frame_isolate_recompiles_id", None)
    # from here on as little as possible, since everything is profiled
    prior = eval_frame.set_eval_frame(None)
    unsafe = eval_frame.set_skip_guard_eval_unsafe(_is_skip_guard_eval_unsafe_stance())
    region = set_region(compiled.context._isolate_recompiles_id) if set_region is not None else None
    observer = get()
    try:
        put(end_at_first_instruction)
        eval_frame.set_eval_frame(canary if callback is not False else False)
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
    if not begun:
        return Seen(None, canary.answer)
    frame = _Begun(*begun.pop())
    entry = next((each for each in entries_of(compiled.code) if each.compiled is frame.f_code), None)
    return Seen(entry) if entry is not None else Seen(None, on_miss(_missed(frame, compiled, callback, was_asked=False)))


register_reader(look_up)


def _stance() -> str:
    from torch._dynamo import eval_frame

    return str(eval_frame._stance.stance)


class _Canary:
    """Stands where torch calls its compiler."""

    def __init__(
        self, compiled: Compiled, callback: Any, on_miss: Callable[[Missed], Any], put: Callable[[None], None]
    ) -> None:
        self._torchdynamo_orig_backend = callback  # by which torch tells backends apart
        self._compiled, self._on_miss, self._put_observer = compiled, on_miss, put
        self.answer: Any = None

    def __call__(self, frame: Any, *more: Any) -> Any:
        from torch._dynamo.types import ConvertFrameReturn

        if frame.f_code is not self._compiled.code:
            return ConvertFrameReturn(apply_to_code=False)
        self._put_observer(None)  # the lookup is over
        self.answer = self._on_miss(_missed(frame, self._compiled, self._torchdynamo_orig_backend, was_asked=True))
        raise _Stop


def _missed(frame: Any, compiled: Compiled, callback: Any, *, was_asked: bool) -> Missed:
    from torch._dynamo import config, convert_frame
    from torch._dynamo.eval_frame import innermost_backend

    region = getattr(compiled.context, "_isolate_recompiles_id", -1)
    entries = [each for each in entries_of(compiled.code) if each.region in (region, -1)]
    has_tensor = inspect.unwrap(convert_frame.has_tensor_in_frame)(frame)
    limit = _limit_exceeded(frame, compiled, entries)
    backend = innermost_backend(callback or compiled.context.callback)
    raises = bool(config.fail_on_recompile_limit_hit or compiled.context.fullgraph)
    return Missed(frame.f_locals, frame.f_globals, backend, entries, has_tensor, limit, raises, was_asked, _stance())


def _limit_exceeded(frame: Any, compiled: Compiled, entries: list[RawEntry]) -> str | None:
    """Name the limit that another compilation would exceed. Torch: `cache_size.compute_cache_size`, by version of its own."""
    from torch._dynamo import cache_size, config
    from torch._dynamo.eval_frame import _debug_get_cache_entry_list

    raw = _debug_get_cache_entry_list(compiled.code)
    if "cache_entry" in inspect.signature(cache_size.compute_cache_size).parameters:  # 2.11: the first of a linked list
        size = cache_size.compute_cache_size(frame, raw[0] if raw else None)
    else:
        region = compiled.context._isolate_recompiles_id
        mine = [each for each in raw if each.isolate_recompiles_id == region]
        size = cache_size.compute_cache_size(frame, mine, len(raw))
    times = max((int(each.compile_id.rpartition("/")[2]) + 1 for each in entries), default=0)
    if size.will_compilation_exceed_accumulated_limit() or times >= config.accumulated_recompile_limit:
        return "accumulated_recompile_limit"
    own = _own_limit(compiled.context)
    return "recompile_limit" if size.will_compilation_exceed_specific_limit(own or config.recompile_limit) else None


def _own_limit(context: Any) -> int | None:
    """Give the limit that was set for this function alone."""
    inner = context.callback
    while inner is not None:
        limit = getattr(inner, "_recompile_limit", None) or getattr(inner, "dynx_recompile_limit", None)
        if limit is not None:
            return int(limit)
        inner = getattr(inner, "_torchdynamo_orig_backend", None)
    return None
