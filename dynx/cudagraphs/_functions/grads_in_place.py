"""A compiled graph whose gradients are written in place: autograd sees one input instead of all parameters."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from operator import is_
from threading import RLock
from typing import Any

import torch
from torch import nn

from dynx._torch.autograd.hooks_and_scalers import are_hooked
from dynx._torch.ops.cuda_graphs import address_check
from dynx.cudagraphs._config import Config
from dynx.cudagraphs._functions.forward_backward import Gradients
from dynx.cudagraphs._functions.graphed import recording_with
from dynx.cudagraphs._functions.recorded_function import Recorded
from dynx.cudagraphs._recording.cache import Key
from dynx.cudagraphs._runtime.interface import Runtime
from dynx.cudagraphs._state.module_state import State, needs_gradient
from dynx.cudagraphs._state.params import leaf_of
from dynx.cudagraphs._state.validation import check_parameters, check_wrappers

_are_at = address_check()


class InPlace:
    """Takes the arguments of a graph, and replays it for those that do not stand still."""

    def __init__(
        self, call: Callable[..., Any], still: Sequence[int], names: Sequence[str], config: Config, runtime: Runtime
    ) -> None:
        self._call, self._still, self._names, self._runtime = call, still, names, runtime
        self._others: list[int] | None = None  # known from the first call
        self.standing: list[Any] = []  # parameters and buffers of the call under way
        self._recorded = Recorded(self._run, "call", "the graph", config, runtime, _Still(self))
        self._recorded.make = partial(recording_with, self._wanted)
        self._given_back: dict[int, int] = {}  # results that are buffers, which a model assigns to itself
        self._recorded.watched = lambda: self.standing
        self._alone = RLock()  # what stands still is that of one call

    def __call__(self, *args: Any) -> Any:
        with self._alone:
            before, self.standing = self.standing, [args[index] for index in self._still]
            try:
                if self._others is None:
                    check_wrappers(self._gradients().parameters)
                    self._others = [index for index in range(len(args)) if index not in self._still]
                given = self._recorded(*[args[index] for index in self._others])
                return self._with_buffers(given) if self._given_back else given
            finally:
                self.standing = before

    def check(self) -> None:
        """Raise UsageError for what may have been put on a parameter since."""
        check_parameters(self._gradients().parameters, self._runtime.device)

    def _gradients(self) -> Gradients:
        named = [(self._names[index], each) for index, each in zip(self._still, self.standing, strict=True)]
        trained = ((name, each) for name, each in named if isinstance(each, nn.Parameter) and each.requires_grad)
        return Gradients(tuple(trained), self._leaves, in_place=True)

    def _wanted(self) -> Gradients:
        """Give what a recording has gradients of."""
        wanted = self._gradients()
        check_wrappers(wanted.parameters)
        return wanted

    def _with_buffers(self, given: Any) -> Any:
        return type(given)(
            self.standing[self._given_back[number]] if number in self._given_back else each for number, each in enumerate(given)
        )

    @contextmanager
    def _leaves(self) -> Iterator[dict[torch.Tensor, torch.Tensor]]:
        """Give the graph other leaves for a while."""
        before = self.standing
        leaves = {each: leaf_of(each) for each in before}
        self.standing = [leaves[each] for each in before]
        try:
            yield leaves
        finally:
            self.standing = before

    def _run(self, *others: Any) -> Any:
        assert self._others is not None
        args: list[Any] = [None] * (len(self._still) + len(others))
        for index, each in (*zip(self._still, self.standing, strict=True), *zip(self._others, others, strict=True)):
            args[index] = each
        given = self._call(*args)
        places = {id(each): number for number, each in enumerate(self.standing) if not each.requires_grad}
        self._given_back = {number: places[id(each)] for number, each in enumerate(given) if id(each) in places}
        return given


class _Still(State):
    """Where parameters and buffers lie, and whether there are gradients."""

    def __init__(self, owner: InPlace) -> None:
        self._owner = owner

    def key(self) -> Key:
        self._owner.check()
        return *((id(each), each.data_ptr(), each.requires_grad) for each in self._owner.standing), torch.is_grad_enabled()

    def held(self) -> Any:
        return list(self._owner.standing)

    def check(self) -> Callable[[], bool]:
        owner, is_enabled, now = self._owner, torch.is_grad_enabled, torch.is_grad_enabled()
        standing, addresses = list(owner.standing), [each.data_ptr() for each in owner.standing]
        all_of_them, has_hooks, need = list(range(len(addresses))), are_hooked(standing), list(map(needs_gradient, standing))
        return lambda: (
            all(map(is_, owner.standing, standing))
            and _are_at(owner.standing, addresses, all_of_them)
            and is_enabled() is now
            and list(map(needs_gradient, owner.standing)) == need  # which not every torch guards
            and not has_hooks()
        )

    def difference(self, one: Key, other: Key) -> str:
        return "where a parameter lies, or whether it is trained,"
