"""Modes of torch that a program may change while it runs: compared after each call, and restored."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch


class _Mode(NamedTuple):
    """The functions that read and set one mode of torch, such as grad mode."""

    get: Callable[[], Any]
    set: Callable[[Any], Any]


_MODES = {
    "grad enabled": _Mode(torch.is_grad_enabled, torch.set_grad_enabled),
    "default dtype": _Mode(torch.get_default_dtype, torch.set_default_dtype),
    "deterministic": _Mode(torch.are_deterministic_algorithms_enabled, torch.use_deterministic_algorithms),
}
for _device in ("cpu", "cuda"):
    _MODES[f"autocast on {_device}"] = _Mode(
        partial(torch.is_autocast_enabled, _device), partial(torch.set_autocast_enabled, _device)
    )
    _MODES[f"autocast dtype on {_device}"] = _Mode(
        partial(torch.get_autocast_dtype, _device), partial(torch.set_autocast_dtype, _device)
    )


def current() -> dict[str, Any]:
    """Return the value of each mode by name. `restore` skips inference mode, since a function cannot leave it changed."""
    return {"inference": torch.is_inference_mode_enabled(), **{name: mode.get() for name, mode in _MODES.items()}}


def restore(values: dict[str, Any]) -> None:
    """Set the modes to `values`, an earlier result of `current`."""
    for name, mode in _MODES.items():
        if mode.get() != values[name]:
            mode.set(values[name])
