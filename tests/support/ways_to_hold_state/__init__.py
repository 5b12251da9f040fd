"""Ways in which a program holds state that a function changes.

Each way takes `mutate`, a function that changes a state, and the state; it returns a function of a tensor that does so, or a
tuple of such a function and further arguments before the tensor.
"""

from support.ways_to_hold_state import classes, functions, modules, objects
from support.ways_to_hold_state.kinds import KINDS, WAYS

__all__ = ["KINDS", "WAYS", "classes", "functions", "modules", "objects"]
