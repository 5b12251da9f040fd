"""Whether a tensor is still alive, also where only autograd holds it.

Torch: `torch._C._WeakTensorRef`, alike in 2.11, 2.13 and 2.15. A weak reference of Python ends with the Python object, which
autograd does not need.
"""

from __future__ import annotations

from typing import Any


def weak_tensor(tensor: Any) -> Any:
    """Make a reference whose `expired()` tells when the tensor is gone."""
    from torch._C import _WeakTensorRef  # type: ignore[attr-defined]

    return _WeakTensorRef(tensor)
