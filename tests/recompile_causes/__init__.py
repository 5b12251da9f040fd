"""Causes of recompiles: a small program for each cause, and the reason that dynx has to report for it.

A cause is a function to compile, its arguments in two calls, what changes between the calls, and the guard that fails. The line
that requested the guard ends with `# HERE`; for guards on global state and the backend it is the line of the call.
"""

from recompile_causes import containers, modules, state, tensors, values
from recompile_causes.base import CAUSES, DYNAMIC, STEADY

__all__ = ["CAUSES", "DYNAMIC", "STEADY", "containers", "modules", "state", "tensors", "values"]
