"""Choose a Python hook that is called when a frame starts: the profile function, or the trace function if a profiler runs."""

from __future__ import annotations

import sys
from typing import Any


def free_profile_hook() -> tuple[Any, Any]:
    """Return the getter and setter of Python's profile function, or those of its trace function if a profiler is running.

    The hook of a running profiler is not replaced, because one that is written in C, such as cProfile, cannot be restored from
    Python.
    """
    return (sys.getprofile, sys.setprofile) if sys.getprofile() is None else (sys.gettrace, sys.settrace)
