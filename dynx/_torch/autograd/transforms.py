"""Detect whether a transform of `torch.func` (vmap, grad, jvp) is active on this thread, or forward-mode AD on any thread.

Torch: `torch._C._are_functorch_transforms_active` and `torch.autograd.forward_ad._current_level`.
"""

from __future__ import annotations

from typing import Any, Final

from torch._C import _are_functorch_transforms_active
from torch.autograd import forward_ad

AD: Final[dict[str, Any]] = vars(forward_ad)  # AD[LEVEL] is the active level of forward-mode AD, -1 for none; read in each call
LEVEL: Final = "_current_level"


def functions_are_transformed() -> bool:
    """Return whether a transform of `torch.func` is active on this thread: tensors may be batches, or have tangents."""
    return bool(_are_functorch_transforms_active())


def is_transformed() -> bool:
    """Return whether a transform of `torch.func`, or a level of forward-mode AD, is active."""
    return _are_functorch_transforms_active() or AD[LEVEL] >= 0
