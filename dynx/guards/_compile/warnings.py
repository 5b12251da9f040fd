"""Warn when a function runs eagerly at a recompile limit, and when `torch.compiler.set_stance` overrides its backend."""

from __future__ import annotations

import inspect
import warnings
from typing import Any

from dynx._bytecode.safe_read import is_module
from dynx._reading.user_location import user_stacklevel
from dynx._torch.cache.entries import entries_of
from dynx._torch.compilation.config import forced_backend
from dynx._torch.compilation.recompile_limit import AtLimit
from dynx._torch.compilation.wrappers import is_shared
from dynx._trace.cache_keys import CacheKey
from dynx.errors import DynxWarning
from dynx.guards._cache.reasons import reasons_of
from dynx.guards._cache.target import definition_of, location_of
from dynx.guards._compile.keyed_backend import text_of
from dynx.records import Reason

_SHOWN = 3


def warn_at_limit(key: CacheKey, call: AtLimit) -> None:
    """Warn that a function has reached its recompile limit; the warning lists the guards of its cache entries that failed."""
    warnings.warn(_text(key, call), DynxWarning, stacklevel=user_stacklevel())


def _text(key: CacheKey, call: AtLimit) -> str:
    function = definition_of(call.locals["fn"]) if is_shared(call.code) and "fn" in call.locals else location_of(call.code)
    entries = [entry for entry in entries_of(call.code) if entry.cache_key == key]
    reasons = reasons_of(entries, call.locals, call.globals, None)  # None: the backends of these entries match
    shown = [f"\n    {text}" for text in dict.fromkeys(map(_reason_text, reasons))]
    more = [f"\n    and {len(shown) - _SHOWN} more"] if len(shown) > _SHOWN else []
    rule = next((reason.rule for reason in reasons if reason.rule is not None), None)
    return (
        f"{function.function} ({function.file}:{function.line}) reached {call.limit} ({call.allowed}) with backend"
        f" {key.settings['backend']!r}: calls that fit none of its cache entries run eagerly from now on"
        + "\n  "
        + ("this call fits none because of" if shown else "none of them is for the key of this call")
        + "".join([*shown[:_SHOWN], *more])
        + (f"\n  run `dynx rule {rule}` for advice" if rule else "")
        + "\n  raise the limit with dynx.compile(..., per_backend_limit=...)"
    )


def _reason_text(reason: Reason) -> str:
    where = f"  ({reason.location.file}:{reason.location.line})" if reason.location is not None else ""
    if reason.expected is None:
        return f"{reason.text or reason.kind}{where}"
    return f"{reason.subject}: {reason.expected}" + (f", now {reason.got}" if reason.got is not None else "") + where


def warn_if_forced(fn: Any, backend: Any) -> None:
    """Warn, once per call site, if `torch.compiler.set_stance` forces `fn` to compile with a backend other than `backend`."""
    forced = forced_backend()
    if forced is None or forced is backend or (type(forced) is str and forced == backend):
        return
    warnings.warn(
        f"{_name(fn)} is compiled with backend {text_of(forced)!r} in addition to"
        f" {text_of(backend)!r}, because torch.compiler.set_stance forces it"
        "\n  the cache entries of the forced backend stay after the stance ends"
        "\n  remove the entries of all backends with dynx.guards.reset(fn)",
        DynxWarning,
        stacklevel=user_stacklevel(),
    )


def _name(fn: Any) -> str:
    inner = inspect.unwrap(fn)  # torch calls modules through functions of its own
    module = getattr(inner, "__self__", inner)
    return text_of(type(module)) if is_module(module) else str(definition_of(fn))
