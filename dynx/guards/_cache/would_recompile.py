"""`dynx.would_recompile`: predict whether a call would compile, without running the function."""

from __future__ import annotations

from types import CodeType
from typing import Any

from dynx._reading.user_location import call_site
from dynx._torch.cache import lookup
from dynx._torch.cache.entries import resumes_of
from dynx._torch.compilation.backend_key import key_of
from dynx._torch.compilation.frame import resumed_at, user_name
from dynx._trace.cache_keys import changes, in_cache
from dynx.guards._cache.hits import not_counting_any
from dynx.guards._cache.reasons import reasons_of
from dynx.guards._cache.target import codes_of, compiled_call_of, location_of
from dynx.records import Verdict


def would_recompile(compiled: Any, /, *args: Any, **kwargs: Any) -> Verdict:
    """Predict whether a call of a compiled callable would compile, and why; the returned Verdict is true if it would.

    Nothing is compiled and the function does not run: torch looks for a cache entry as in a real call (the same backend,
    configuration and stance), and is stopped before the first instruction of the function. Guards are evaluated as in a call,
    so they may run properties and `__eq__` of your classes.

    Args:
        compiled: What torch.compile or dynx.compile returned for a function, method or module.
        *args: Positional arguments of the call.
        **kwargs: Keyword arguments of the call.

    Returns:
        A verdict with `outcome`; `reasons`, the failing guard of each cache entry; and `unknown`, further code that the call
        may compile and that torch looks up only while the function runs: resume functions, forward hooks, and the functions
        that an eager frame calls.

    Raises:
        UsageError: `compiled` is not compiled.
        TypeError: The arguments do not fit the signature.

    Example:
        >>> import torch, dynx
        >>> f = torch.compile(lambda x: x + 1, backend="eager", dynamic=False)
        >>> y = f(torch.ones(3))
        >>> dynx.would_recompile(f, torch.ones(3)).hit
        True
        >>> verdict = dynx.would_recompile(f, torch.ones(4))
        >>> [(reason.source, reason.expected, reason.got) for reason in verdict.reasons]
        [('x.size()[0]', '3', '4')]
    """
    call = compiled_call_of(compiled)
    if call.parts is None:
        return Verdict("eager" if call.is_disabled else "unknown", location_of(codes_of(compiled)[0]), why=call.why_unknown)
    code = call.parts.code
    location = location_of(code)

    def on_miss(miss: lookup.Missed) -> Verdict:
        reasons = reasons_of(miss.entries, miss.locals, miss.globals, miss.backend)
        if not reasons and (key := key_of(miss.backend)) is not None:
            reasons = changes(in_cache(code), key, call_site())  # the cache entries belong to other backends or configurations
        if (why := _why_eager(miss)) is not None:
            callees = f"the functions that {user_name(code.co_qualname)} calls"
            unknown = (callees, *call.unknown) if _compiles_callees(miss) else ()
            return Verdict("eager", location, reasons=reasons, why=why, unknown=unknown)
        why = f"the stance {miss.stance!r} raises instead" if miss.stance == "fail_on_recompile" else None
        return Verdict("recompile" if reasons else "compile", location, reasons=reasons, why=why)

    with not_counting_any(code):
        result = lookup.look_up(call.parts, (*call.bound, *args), {**call.named, **kwargs}, on_miss)
    if isinstance(result.miss, Verdict):
        return result.miss
    if result.entry is None:
        return Verdict("eager", location, why=result.off)
    unknown = (*map(_resume_function, resumes_of(code)), *call.unknown)
    return Verdict("hit", location, entry=result.entry.compile_id, unknown=unknown)


def _why_eager(miss: lookup.Missed) -> str | None:
    if miss.skipped is not None:
        return miss.skipped
    if not miss.has_tensor:
        return "no tensor among its arguments"
    if miss.stance == "eager_on_recompile":
        return f"the stance {miss.stance!r} does not compile"
    if miss.limit is not None:
        raises = "; the call raises, since fullgraph=True or fail_on_recompile_limit_hit is set" if miss.limit_raises else ""
        return f"torch._dynamo.config.{miss.limit} is reached{raises}"
    return None if miss.reaches_compiler else "torch gave up on it in an earlier call; dynx.guards.reset(fn) makes it try again"


def _compiles_callees(miss: lookup.Missed) -> bool:
    """Return whether only this frame runs eagerly after the cache miss, so that torch may compile the functions it calls."""
    return miss.skipped is None and miss.stance != "eager_on_recompile" and not (miss.limit is not None and miss.limit_raises)


def _resume_function(code: CodeType) -> str:
    return f"the resume function of {user_name(code.co_qualname)} after line {resumed_at(code)}, and the functions it calls"
