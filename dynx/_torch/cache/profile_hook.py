"""A place where Python tells of frames that begin, which nobody else uses."""

from __future__ import annotations

import sys
from typing import Any


def free_observer() -> tuple[Any, Any]:
    """Give what gets and what sets Python's profile function, or its trace function where a profiler runs.

    A profiler written in C, such as cProfile, cannot be put back from Python once it was replaced.
    """
    return (sys.getprofile, sys.setprofile) if sys.getprofile() is None else (sys.gettrace, sys.settrace)
