"""Keep the functions that `ctx.guard_on` (`dynx.comptime`) guards on, so that a recompile can report their current results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dynx._torch.tracing.render import show_value

_functions: dict[str, Callable[[], Any]] = {}


def remember(name: str, function: Callable[[], Any]) -> None:
    """Keep the function of the custom guard `name`; it replaces an earlier function of the same name."""
    _functions[name] = function


def current_value(name: str) -> str | None:
    """Call the function of the custom guard `name` and return its result as text; None if it raises or does not exist."""
    function = _functions.get(name)
    if function is None:
        return None
    try:
        return show_value(function())
    except Exception:  # noqa: BLE001 - a function of the user; torch has called it just before, to evaluate the guard
        return None
