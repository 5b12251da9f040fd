"""Compile without timing guards: to do that, torch overwrites the caches of the processor, 50 ms for each compilation."""

from __future__ import annotations

import torch._dynamo.guards

OF_TORCH = torch._dynamo.guards.profile_guard_manager


def install() -> None:
    """Evaluate the guards of each new cache entry once, as torch does, but do not time that."""
    torch._dynamo.guards.profile_guard_manager = _evaluate


def _evaluate(root, scope, repeats):
    root.check(scope)
    return 0.0
