"""Call an inference graph without AOTAutograd's runtime wrappers if these have no effect."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch

from dynx.cudagraphs._compiled.runner import Runner
from dynx.cudagraphs._search.identity import are_identical


class _UnderWay(threading.local):
    """The compiled graph's arguments and results in the current call of a thread, inside AOTAutograd's wrappers."""

    inner: tuple[Sequence[Any], Sequence[Any]] | None = None


class Bypass:
    """A runner that is called without AOTAutograd's wrappers, once a call has shown that they change nothing.

    The wrappers change nothing if they pass the caller's argument objects on to the graph and return the graph's result
    objects, and if the graph mutates nothing. They also disable autograd and autocast. This is not needed in a call that
    skips them: they are skipped only while grad mode is off, and a replay does not depend on autocast.
    """

    def __init__(self, runner: Runner) -> None:
        self.runner = runner
        self._boxed_call = True  # see Runner
        self._under_way = _UnderWay()
        self._is_proven: bool | None = False  # None: not known yet

    def __call__(self, args: list[Any]) -> Sequence[Any]:
        """Run the compiled graph; AOTAutograd's wrappers call this."""
        if self._is_proven is not None:
            return self.runner(args)
        passed = tuple(args)
        results = self.runner(args)
        self._under_way.inner = passed, results
        return results

    def around(self, wrapped: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that calls AOTAutograd's wrappers (`wrapped`), or the runner directly once these can be skipped."""
        self._is_proven, replay_last = None, self.runner.replay_last

        def call(*args: Any) -> Any:
            if self._is_proven is False or torch.is_grad_enabled():
                return wrapped(*args)
            if self._is_proven:
                replayed = replay_last(list(args))
                return wrapped(*args) if replayed is None else replayed
            try:
                results = wrapped(*args)
                if self._under_way.inner is not None and self.runner.recordings:
                    self._is_proven = self._proves(args, results, self._under_way.inner)
            finally:
                self._under_way.inner = None
            return results

        return call

    def _proves(self, args: tuple[Any, ...], results: Any, inner: tuple[Sequence[Any], Sequence[Any]]) -> bool:
        passed, returned = inner
        has_same_results = isinstance(results, (list, tuple)) and are_identical(results, returned)
        return self.runner.plan.is_pure and are_identical(args, passed) and has_same_results
