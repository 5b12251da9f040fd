"""Calls of an inference graph that go around AOTAutograd's wrappers, where these have nothing to do."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch

from dynx.cudagraphs._compiled.runner import Runner


class _Inside(threading.local):
    """What the wrappers gave in the call that is under way in a thread, and were given."""

    seen: tuple[tuple[Any, ...], Sequence[Any]] | None = None


class Direct:
    """Goes around once a call through the wrappers has shown that they hand on just what they are given.

    Arguments and results have to be the same objects on both sides, and the graph must change nothing. What else the wrappers
    do is to turn autograd off, as it is already where this goes around, and autocast, which a replay does not know.
    """

    def __init__(self, runner: Runner) -> None:
        self.runner = runner
        self._boxed_call = True
        self._inside = _Inside()
        self._is_proven: bool | None = False  # None: this is to be seen

    def __call__(self, args: list[Any]) -> Sequence[Any]:
        """Be called by the wrappers."""
        if self._is_proven is not None:
            return self.runner(args)
        given = tuple(args)
        results = self.runner(args)
        self._inside.seen = given, results
        return results

    def around(self, wrapped: Callable[..., Any]) -> Callable[..., Any]:
        """Give what is called in place of the wrappers."""
        self._is_proven, replay_last = None, self.runner.replay_last

        def call(*args: Any) -> Any:
            if self._is_proven is False or torch.is_grad_enabled():
                return wrapped(*args)
            if self._is_proven:
                found = replay_last(list(args))
                return wrapped(*args) if found is None else found
            try:
                results = wrapped(*args)
                if self._inside.seen is not None and self.runner.recordings:
                    self._is_proven = self._has_shown(args, results, *self._inside.seen)
            finally:
                self._inside.seen = None
            return results

        return call

    def _has_shown(self, args: tuple[Any, ...], results: Any, given: tuple[Any, ...], inner: Sequence[Any]) -> bool:
        return (
            self.runner.plan.is_pure
            and _are_same(args, given)
            and isinstance(results, (list, tuple))
            and _are_same(results, inner)
        )


def _are_same(some: Sequence[Any], others: Sequence[Any]) -> bool:
    return len(some) == len(others) and all(one is other for one, other in zip(some, others, strict=True))
