"""Whether hooks see what autograd saves.

Torch: `torch._C._autograd._top_saved_tensors_default_hooks`, alike in 2.11, 2.13 and 2.15.
"""

from __future__ import annotations

import torch


def hooks_are_set() -> bool:
    """Tell whether hooks of `torch.autograd.graph.saved_tensors_hooks` are active: autograd hands them all that it saves."""
    return torch._C._autograd._top_saved_tensors_default_hooks(False) is not None
