"""Apply foreach operators, which process a list of tensors in one call.

Torch: `torch._foreach_copy_`, `_foreach_add_`, `_foreach_zero_` and `_foreach_mul`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch


def copy_all(targets: Sequence[Any], sources: Sequence[Any]) -> None:
    """Copy each source tensor into the target tensor at the same index, which has the same sizes."""
    torch._foreach_copy_(targets, sources)


def add_all(targets: Sequence[Any], tensors: Sequence[Any]) -> None:
    """Add each tensor in place to the target tensor at the same index, which has the same sizes."""
    if targets:
        torch._foreach_add_(targets, tensors)


def zero_all(tensors: Sequence[Any]) -> None:
    """Fill tensors with zeros in place."""
    if tensors:
        torch._foreach_zero_(tensors)


def copies_of(tensors: Sequence[Any]) -> Sequence[Any]:
    """Return copies of floating-point tensors in new memory."""
    return torch._foreach_mul(tensors, 1)
