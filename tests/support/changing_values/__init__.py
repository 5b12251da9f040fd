"""Values that a recorded function reads and a program changes, in many ways."""

from support.changing_values import code, containers, names
from support.changing_values.kinds import CASES, linear

__all__ = ["CASES", "code", "containers", "linear", "names"]
