"""Calls of an inference graph that go around AOTAutograd's wrappers, where these have nothing to do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from dynx.cudagraphs._runner import Runner

_MARK = "_dynamo_weak_dynamic_indices"  # that wrappers put on results of other sizes on each call


class Direct:
    """Goes around once a call through the wrappers has shown that they hand on just what they are given.

    Arguments and results have to be the same objects on both sides, and the graph must change nothing. What else the wrappers
    do is for operators: they turn off autograd and autocast, and a replay has none.
    """

    def __init__(self, runner: Runner) -> None:
        self.runner = runner
        self._boxed_call = True
        self._inside: tuple[tuple[Any, ...], Sequence[Any]] | None = None
        self._is_proven: bool | None = False  # None: this is to be seen

    def __call__(self, args: list[Any]) -> Sequence[Any]:
        """Be called by the wrappers."""
        if self._is_proven is not None:
            return self.runner(args)
        given = tuple(args)
        results = self.runner(args)
        self._inside = given, results
        return results

    def around(self, wrapped: Callable[..., Any]) -> Callable[..., Any]:
        """Give what is called in place of the wrappers."""
        self._is_proven, replay_last = None, self.runner.replay_last

        def call(*args: Any) -> Any:
            if self._is_proven:
                found = replay_last(list(args))
                if found is not None:
                    return found
            results = wrapped(*args)
            if self._is_proven is None and self.runner.recordings:
                self._is_proven = self._has_shown(args, results)
            self._inside = None
            return results

        return call

    def _has_shown(self, args: tuple[Any, ...], results: Any) -> bool:
        if self._inside is None or not self.runner.plan.is_pure:
            return False
        if torch.is_grad_enabled() and any(isinstance(each, torch.Tensor) and each.requires_grad for each in args):
            return False
        given, inner = self._inside
        return (
            _are_same(args, given)
            and isinstance(results, (list, tuple))
            and _are_same(results, inner)
            and not any(hasattr(each, _MARK) for each in results)
        )


def _are_same(some: Sequence[Any], others: Sequence[Any]) -> bool:
    return len(some) == len(others) and all(one is other for one, other in zip(some, others, strict=True))
