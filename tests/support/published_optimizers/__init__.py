"""Optimizers, wrappers and schedulers that hold their state in the ways of those which people publish.

Some count in globals, environment variables or generators, which `make` resets: train with one before making the next.
"""

from support.published_optimizers.adaptive import ADAPTIVE
from support.published_optimizers.averaging import AVERAGING
from support.published_optimizers.counters import COUNTERS
from support.published_optimizers.estimating import ESTIMATING
from support.published_optimizers.kinds import Published, count_at
from support.published_optimizers.matrices import MATRICES
from support.published_optimizers.schedules import SCHEDULES
from support.published_optimizers.steps import STEPS
from support.published_optimizers.wrappers import WRAPPERS

ALL: tuple[Published, ...] = (*COUNTERS, *AVERAGING, *ADAPTIVE, *ESTIMATING, *MATRICES, *WRAPPERS, *STEPS, *SCHEDULES)

__all__ = ["ALL", "Published", "count_at"]
