"""Modes of torch that a program may change while it runs: compared after each call, and restored."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

# the functions that read and set each mode
_MODES: dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]] = {
    "grad enabled": (torch.is_grad_enabled, torch.set_grad_enabled),
    "default dtype": (torch.get_default_dtype, torch.set_default_dtype),
    "deterministic": (torch.are_deterministic_algorithms_enabled, torch.use_deterministic_algorithms),
}
for _on in ("cpu", "cuda"):
    _MODES[f"autocast on {_on}"] = partial(torch.is_autocast_enabled, _on), partial(torch.set_autocast_enabled, _on)
    _MODES[f"autocast dtype on {_on}"] = partial(torch.get_autocast_dtype, _on), partial(torch.set_autocast_dtype, _on)


def current() -> dict[str, Any]:
    """Return the value of each mode by name. `restore` skips inference mode, since a function cannot leave it changed."""
    return {"inference": torch.is_inference_mode_enabled(), **{name: get() for name, (get, _) in _MODES.items()}}


def restore(values: dict[str, Any]) -> None:
    """Set the modes to `values`, an earlier result of `current`."""
    for name, (get, set_to) in _MODES.items():
        if get() != values[name]:
            set_to(values[name])
