"""Call an inference graph without AOTAutograd's runtime wrappers if these have no effect."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

from dynx.cudagraphs._compiled.runner import Runner
from dynx.cudagraphs._search.identity import are_identical


class _InnerCall(NamedTuple):
    """The arguments that AOTAutograd's wrappers passed to the compiled graph, and the results that it returned to them."""

    args: tuple[Any, ...]
    results: Sequence[Any]


class _UnderWay(threading.local):
    """The call of the compiled graph that AOTAutograd's wrappers made in the call in progress; one for each thread."""

    inner: _InnerCall | None = None


class Bypass:
    """A runner that is called without AOTAutograd's wrappers, once a call has shown that they change nothing.

    The wrappers are skipped if the arguments and results of that call were the same objects inside and outside of them, and
    the graph mutates nothing. What else they do is not needed: they disable autograd, which is disabled already in the calls
    that skip them, and autocast, on which a replay does not depend.
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
        self._under_way.inner = _InnerCall(passed, results)
        return results

    def around(self, wrapped: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that calls `wrapped`, the runner with AOTAutograd's wrappers, or the runner without them."""
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

    def _proves(self, args: tuple[Any, ...], results: Any, inner: _InnerCall) -> bool:
        return (
            self.runner.plan.is_pure
            and are_identical(args, inner.args)
            and isinstance(results, (list, tuple))
            and are_identical(results, inner.results)
        )
