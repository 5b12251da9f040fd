"""Say it when a function that dynx.compile made reaches a limit of recompiles: torch runs it eagerly from then on."""

from __future__ import annotations

import threading
import warnings
from typing import Any
from weakref import finalize

from dynx._torch import cache_entries
from dynx._torch.capabilities import hook_point
from dynx._torch.frames import CompileCall, compile_call, ending, limit_value
from dynx._torch.hooks import After, Subscription, subscribe
from dynx._trace import bus
from dynx._trace.userline import levels_to_the_user
from dynx.errors import DynxWarning
from dynx.guards._entries import location_of
from dynx.guards._reasons import reasons_of
from dynx.records import Reason, Trouble

_SHOWN = 3

_lock = threading.RLock()
_backends = 0
_subscription: Subscription | None = None


def warn_at_limits_of(backend: Any) -> None:
    """Warn when a function reaches a limit with a keyed backend, as long as one lives."""
    global _backends, _subscription
    with _lock:
        _backends += 1
        if _subscription is None:
            _subscription = subscribe(hook_point("compile"), _on_compile, on_error=_report)
    finalize(backend, _one_less).atexit = False


def _one_less() -> None:
    global _backends, _subscription
    with _lock:
        _backends -= 1
        if _backends == 0 and _subscription is not None:
            _subscription.remove()
            _subscription = None


def _on_compile(args: tuple[Any, ...], kwargs: dict[str, Any]) -> After | None:
    call = compile_call(args, kwargs)
    if call.cache_key is None:
        return None

    def after(result: Any, raised: BaseException | None) -> None:
        limit = ending(result, raised, fullgraph=call.fullgraph).limit
        if limit is not None:
            warnings.warn(_text(call, limit), DynxWarning, stacklevel=levels_to_the_user())

    return after


def _text(call: CompileCall, limit: str) -> str:
    function = location_of(call.code)
    entries = [each for each in cache_entries.entries_of(call.code) if each.cache_key == call.cache_key]
    reasons = reasons_of(entries, call.locals, call.globals, None)  # all of this backend
    shown = [f"\n    {each}" for each in dict.fromkeys(map(_words, reasons))]
    more = [f"\n    and {len(shown) - _SHOWN} more"] if len(shown) > _SHOWN else []
    rule = next((each.rule for each in reasons if each.rule is not None), None)
    return (
        f"{function.function} ({function.file}:{function.line}) reached {limit} ({limit_value(limit)}) with backend"
        f" {call.backend!r}: calls that fit no version of it run eagerly from now on\n  this call fits none because of"
        + "".join([*shown[:_SHOWN], *more])
        + (f"\n  run `dynx rule {rule}` for what helps" if rule else "")
        + "\n  dynx.compile(..., per_backend_limit=...) gives more room"
    )


def _words(reason: Reason) -> str:
    where = f"  ({reason.location.file}:{reason.location.line})" if reason.location is not None else ""
    if reason.expected is None:
        return f"{reason.text or reason.kind}{where}"
    got = f", now {reason.got}" if reason.got is not None else ""
    return f"{reason.source}: {reason.expected}{got}{where}"


def _report(hook: str, error: BaseException) -> None:
    bus.emit(Trouble("warnings at a limit of recompiles", f"{type(error).__name__}: {error}"))
