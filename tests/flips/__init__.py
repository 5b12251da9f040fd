"""Flips: a compiled function is called with two values of one guarded thing, and dynx has to report both, in either order.

Each flip is run from the first value to the second and, in a fresh cache, from the second to the first.
"""

from flips import containers, objects, state, tensors, values
from flips.base import FLIPS, Flip, Seen, flip

__all__ = ["FLIPS", "Flip", "Seen", "containers", "flip", "objects", "state", "tensors", "values"]
