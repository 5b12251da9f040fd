"""Say it when a stance makes torch compile a function for another backend: that version stays when the stance is over."""

from __future__ import annotations

import inspect
import warnings
from typing import Any

from dynx._torch.compilation.config import forced_backend
from dynx._trace.userline import levels_to_the_user
from dynx._trace.values import is_module
from dynx.errors import DynxWarning
from dynx.guards._keyed import text_of
from dynx.guards._target import place_of


def warn_if_forced(fn: Any, backend: Any) -> None:
    """Warn with the function and both backends; Python shows it once for each call site."""
    forced = forced_backend()
    if forced is None or forced is backend or (type(forced) is str and forced == backend):
        return
    warnings.warn(
        f"{_name(fn)} is compiled with backend {text_of(forced)!r} besides"
        f" {text_of(backend)!r}, since torch.compiler.set_stance forces it"
        "\n  what that compiles stays when the stance is over, in a cache of its own"
        "\n  dynx.guards.reset(function) frees it, and what is compiled with the other backends",
        DynxWarning,
        stacklevel=levels_to_the_user(),
    )


def _name(fn: Any) -> str:
    inner = inspect.unwrap(fn)  # torch calls modules through functions of its own
    module = getattr(inner, "__self__", inner)
    return text_of(type(module)) if is_module(module) else str(place_of(fn))
