"""Determine whether torch.compile compiles or is disabled, and read the settings under which compiled functions are called."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Prepared:
    """Whether a call of torch.compile compiles its function or does nothing (`disable=True`); in the latter case, why."""

    compiles: bool  # False for a decorator that does nothing
    why_not: str = ""  # "disable=True", "TORCHDYNAMO_DISABLE=1"


@dataclass(frozen=True, slots=True)
class Call:
    """The settings under which a compiled function is called: stance, `config.disable`, and modes that prevent compiling."""

    stance: str
    is_disabled: bool  # `torch._dynamo.config.disable`
    modes: tuple[str, ...]  # classes of the active `TorchDispatchMode`s under which torch compiles nothing


def prepared(kwargs: dict[str, Any], result: Any) -> Prepared:
    """Return whether the `result` of `eval_frame._optimize` compiles functions; a `_NullDecorator` does not (2.11 to 2.15)."""
    if type(result).__name__ != "_NullDecorator":
        return Prepared(compiles=True)
    if kwargs.get("disable"):
        return Prepared(compiles=False, why_not="disable=True")
    return Prepared(compiles=False, why_not="TORCHDYNAMO_DISABLE=1" if os.environ.get("TORCHDYNAMO_DISABLE") == "1" else "")


def call_of(args: tuple[Any, ...]) -> Call | None:
    """Return the settings under which a compiled function is called, from the `args` of `eval_frame._callback_from_stance`.

    Torch calls `_callback_from_stance` in each call of a compiled function. It does so for a function under
    `torch.compiler.disable` too, but passes no callback: the result is None.
    """
    if not args or args[0] is None or args[0] is False:
        return None
    from torch._dynamo import config, eval_frame
    from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

    stance = getattr(getattr(eval_frame, "_stance", None), "stance", "default")
    modes = tuple(type(mode).__name__ for mode in _get_current_dispatch_mode_stack() if not _may_compile(mode))
    return Call(str(stance), bool(getattr(config, "disable", False)), modes)


def _may_compile(mode: Any) -> bool:
    """Return whether torch compiles in this dispatch mode: if its `is_infra_mode` or `ignore_compile_internals` is true."""
    return any(getattr(type(mode), name, bool)() for name in ("is_infra_mode", "ignore_compile_internals"))
