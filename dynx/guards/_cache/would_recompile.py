"""`dynx.would_recompile`: what torch would do with a call, without the call."""

from __future__ import annotations

from types import CodeType
from typing import Any

from dynx._torch.cache import lookup
from dynx._torch.cache.entries import resumes_of
from dynx._torch.compilation.backend_key import key_of
from dynx._torch.compilation.frame import resumed_at, user_name
from dynx._trace.cache_keys import changes, in_cache
from dynx._trace.user_location import call_site
from dynx.guards._cache.reasons import reasons_of
from dynx.guards._cache.target import codes_of, compiled_call_of, location_of
from dynx.records import Verdict


def would_recompile(compiled: Any, /, *args: Any, **kwargs: Any) -> Verdict:
    """Tell whether a call of a compiled function would compile, and why; true when it would.

    Nothing is compiled or run: torch looks the call up with the backend, configuration, stance and region that it would have,
    and is stopped before the function begins. `reasons` say of each entry why it does not fit, as recompiles do. What is
    decided only while the function runs, in its rest after a graph break, is named in `unknown`.

    `compiled` is what torch.compile or dynx.compile made of a function, method or module; the arguments are those of the call.
    Raises UsageError for what is not compiled, TypeError where the arguments do not fit. Guards are evaluated as in a call:
    they may run properties and `__eq__` of the user.

    >>> import torch, dynx
    >>> f = torch.compile(lambda x: x + 1, backend="eager", dynamic=False)
    >>> y = f(torch.ones(3))
    >>> dynx.would_recompile(f, torch.ones(3)).hit
    True
    >>> [(each.source, each.expected, each.got) for each in dynx.would_recompile(f, torch.ones(4)).reasons]
    [('x.size()[0]', '3', '4')]
    """
    target = compiled_call_of(compiled)
    if target.parts is None:
        return Verdict("eager" if target.is_disabled else "unknown", location_of(codes_of(compiled)[0]), why=target.why_unknown)
    code = target.parts.code
    location = location_of(code)

    def on_miss(miss: lookup.Missed) -> Verdict:
        reasons = reasons_of(miss.entries, miss.locals, miss.globals, miss.backend)
        if not reasons and (key := key_of(miss.backend)) is not None:
            reasons = changes(in_cache(code), key, call_site())  # there are versions for other backends or configurations
        if (why := _why_eager(miss)) is not None:
            return Verdict("eager", location, reasons=reasons, why=why)
        why = f"the stance {miss.stance!r} raises instead" if miss.stance == "fail_on_recompile" else None
        return Verdict("recompile" if reasons else "compile", location, reasons=reasons, why=why)

    seen = lookup.look_up(target.parts, (*target.bound, *args), kwargs, on_miss)
    if isinstance(seen.miss, Verdict):
        return seen.miss
    if seen.entry is None:
        return Verdict("eager", location, why=seen.off)
    return Verdict("hit", location, entry=seen.entry.compile_id, unknown=tuple(map(_rest, resumes_of(code))))


def _why_eager(miss: lookup.Missed) -> str | None:
    if not miss.has_tensor:
        return "no tensor among its arguments"
    if miss.stance == "eager_on_recompile":
        return f"the stance {miss.stance!r} compiles nothing"
    if miss.limit is not None:
        raises = "; the call raises, since fullgraph=True or fail_on_recompile_limit_hit is set" if miss.limit_raises else ""
        return f"torch._dynamo.config.{miss.limit} is reached{raises}"
    return None if miss.was_asked else "torch gave it up at an earlier call; dynx.guards.reset(function) has it try again"


def _rest(code: CodeType) -> str:
    return f"the rest of {user_name(code.co_qualname)} after line {resumed_at(code)}, and what is called there"
