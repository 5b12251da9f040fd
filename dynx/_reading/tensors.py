"""The tensors among the values that a function takes and returns."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._pytree import tree_leaves


def tensors_in(values: Any) -> list[torch.Tensor]:
    """Return the tensors in a pytree."""
    return [leaf for leaf in tree_leaves(values) if isinstance(leaf, torch.Tensor)]


def differentiable(values: Any) -> list[torch.Tensor]:
    """Return the tensors in a pytree that require gradients."""
    return [tensor for tensor in tensors_in(values) if tensor.requires_grad]


def has_memory(value: Any) -> bool:
    """Return whether a value is a tensor with a storage: strided (not sparse), and not on the meta device."""
    return isinstance(value, torch.Tensor) and value.layout is torch.strided and not value.is_meta
