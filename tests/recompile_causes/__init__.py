"""What makes torch compile again: one program each, and what a reason has to say of it.

A cause is a function to compile, its first and second arguments, what changes in between, and the failed guard. The line that
has to be named ends with `# HERE`; where global state or the backend changed it is the line of the call.
"""

from recompile_causes import containers, modules, state, tensors, values
from recompile_causes.base import CAUSES, DYNAMIC, STEADY

__all__ = ["CAUSES", "DYNAMIC", "STEADY", "containers", "modules", "state", "tensors", "values"]
