"""Detect whether saved-tensor hooks are active.

Torch: `_top_saved_tensors_default_hooks` and `_saved_tensors_hooks_is_enabled` of `torch._C._autograd`, alike in 2.11, 2.13 and
2.15.
"""

from __future__ import annotations

import torch

_IGNORE_TRACING = False  # the argument `ignore_is_tracing`, which is positional


def hooks_are_set() -> bool:
    """Return whether `torch.autograd.graph.saved_tensors_hooks` are active on this thread.

    They are not while a graph runs into which they were inlined: AOTAutograd disables them meanwhile.
    """
    autograd = torch._C._autograd
    return autograd._top_saved_tensors_default_hooks(_IGNORE_TRACING) is not None and autograd._saved_tensors_hooks_is_enabled()
