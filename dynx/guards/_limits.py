"""Say it when a function that dynx.compile made reaches a limit of recompiles: torch runs it eagerly from then on."""

from __future__ import annotations

import warnings

from dynx._torch.cache.entries import entries_of
from dynx._torch.compilation.recompile_limit import AtLimit
from dynx._torch.compilation.wrappers import is_shared
from dynx._trace.cache_keys import CacheKey
from dynx._trace.userline import levels_to_the_user
from dynx.errors import DynxWarning
from dynx.guards._reasons import reasons_of
from dynx.guards._target import location_of, place_of
from dynx.records import Reason

_SHOWN = 3


def warn_at_limit(key: CacheKey, call: AtLimit) -> None:
    """Warn with the function, the limit, and what the call does not fit of each version for this backend and configuration."""
    warnings.warn(_text(key, call), DynxWarning, stacklevel=levels_to_the_user())


def _text(key: CacheKey, call: AtLimit) -> str:
    function = place_of(call.locals["fn"]) if is_shared(call.code) and "fn" in call.locals else location_of(call.code)
    entries = [each for each in entries_of(call.code) if each.cache_key == key]
    reasons = reasons_of(entries, call.locals, call.globals, None)  # all of this backend
    shown = [f"\n    {each}" for each in dict.fromkeys(map(_words, reasons))]
    more = [f"\n    and {len(shown) - _SHOWN} more"] if len(shown) > _SHOWN else []
    rule = next((each.rule for each in reasons if each.rule is not None), None)
    return (
        f"{function.function} ({function.file}:{function.line}) reached {call.limit} ({call.allowed}) with backend"
        f" {key.settings['backend']!r}: calls that fit no version of it run eagerly from now on"
        "\n  this call fits none because of"
        + "".join([*shown[:_SHOWN], *more])
        + (f"\n  run `dynx rule {rule}` for what helps" if rule else "")
        + "\n  dynx.compile(..., per_backend_limit=...) gives more room"
    )


def _words(reason: Reason) -> str:
    where = f"  ({reason.location.file}:{reason.location.line})" if reason.location is not None else ""
    if reason.expected is None:
        return f"{reason.text or reason.kind}{where}"
    return f"{reason.subject}: {reason.expected}" + (f", now {reason.got}" if reason.got is not None else "") + where
