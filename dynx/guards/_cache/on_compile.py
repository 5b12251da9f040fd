"""Notify a listener of every new cache entry that torch compiles for a callable."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dynx._torch import hooks
from dynx._torch.capabilities import hook_point
from dynx._torch.compilation.frame import compile_call, guards_of
from dynx._torch.hooks import After
from dynx._torch.tracing.line_hook import original_code
from dynx._trace.dispatch import trouble
from dynx.guards._cache.owner import CacheOwner


def on_compiled(owner: CacheOwner, listener: Callable[[str, Any], None], *, what: str) -> hooks.Subscription:
    """Call `listener` with compile id and guard manager of each new cache entry of a callable and its resume functions.

    `what` names the feature (`"count_hits"`) in the record of an error that the listener raises. The returned subscription ends
    the calls with `remove()`.
    """

    def before(args: tuple[Any, ...], kwargs: dict[str, Any]) -> After | None:
        call = compile_call(args, kwargs)
        compiled_codes = call.code, original_code(call.code)
        if not any(owned is code for owned in owner.codes for code in compiled_codes):
            return None

        def after(result: Any, raised: BaseException | None) -> None:
            guards = None if raised is not None else guards_of(result)
            if guards is not None and owner.has(guards, call.code):
                listener(call.id, guards)

        return after

    def report(hook: str, error: BaseException) -> None:
        trouble(what, error)

    return hooks.subscribe(hook_point("compile"), before, on_error=report)
