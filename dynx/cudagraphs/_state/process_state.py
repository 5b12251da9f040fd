"""The settings of torch that Python code and operators read: autocast, default dtype, determinism, precision."""

from __future__ import annotations

from collections.abc import Callable, Hashable

import torch

from dynx._torch.ops.fast_checks import settings_check


def process_key(device_type: str) -> Hashable:
    """Return a key of the settings on which the operators and results of a call depend, besides grad mode."""
    return (
        torch.get_autocast_dtype(device_type) if torch.is_autocast_enabled(device_type) else None,
        torch.get_default_dtype(),
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
        torch.get_float32_matmul_precision(),
    )


def process_check(device_type: str) -> Callable[[], bool]:
    """Return a predicate that is true while the settings are those of now.

    It compares all settings at once. These are more than a call depends on, grad mode for example: where they differ, the
    settings are read one by one.
    """
    is_unchanged, before = settings_check(), process_key(device_type)
    return lambda: is_unchanged() or process_key(device_type) == before
