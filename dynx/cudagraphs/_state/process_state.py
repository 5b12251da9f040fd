"""Read the settings of torch on which results depend: autocast, default dtype, determinism, precision, active modes."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import torch

from dynx._torch.compilation.in_use import active_modes


def process_key(device_type: str) -> Hashable:
    """Return a key of the active torch modes, and of settings (except grad mode) that the results of operators depend on."""
    return *settings_of(device_type), *map(id, modes_of_program())


def settings_of(device_type: str) -> tuple[Hashable, ...]:
    """Return settings that results depend on (autocast, default dtype, determinism, precision), in under a microsecond."""
    return (
        torch.get_autocast_dtype(device_type) if torch.is_autocast_enabled(device_type) else None,
        torch.get_default_dtype(),
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
        torch.get_float32_matmul_precision(),
    )


def modes_of_program() -> list[Any]:
    """Return the dispatch and torch function modes that are active on this thread, except those of dynx."""
    return [mode for mode in active_modes() if not type(mode).__module__.startswith("dynx.")]
