"""Recordings of a compiled graph that write gradients to `.grad` themselves, without autograd (`gradients="in_place"`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from operator import is_
from threading import RLock
from typing import Any

import torch
from torch import nn

from dynx._torch.autograd.hooks_and_scalers import gradient_hooks_check
from dynx._torch.ops.cuda_graphs import address_check
from dynx.cudagraphs._config import Config
from dynx.cudagraphs._functions.forward_backward import GradientPolicy
from dynx.cudagraphs._functions.graphed import record_with_gradients
from dynx.cudagraphs._functions.recorded_function import RecordedFunction, RecordingPolicy
from dynx.cudagraphs._recording.cache import Key
from dynx.cudagraphs._runtime.interface import Runtime
from dynx.cudagraphs._search.identity import needs_gradient
from dynx.cudagraphs._state.module_state import State
from dynx.cudagraphs._state.params import leaf_of
from dynx.cudagraphs._state.validation import check_parameters, check_wrappers

_are_at = address_check()


class GradsInPlace:
    """A compiled graph whose replayed backward pass, instead of autograd, sets `.grad` of the parameters or adds to it.

    The arguments at the indices `static` are parameters and buffers, which replays read at their addresses; the graph is
    recorded as a function of its other arguments. `names` has a name for each argument, for messages.
    """

    def __init__(
        self, call: Callable[..., Any], static: Sequence[int], names: Sequence[str], config: Config, runtime: Runtime
    ) -> None:
        self._call, self._static, self._names, self._runtime = call, static, names, runtime
        self._dynamic: list[int] | None = None  # indices of the other arguments; None before the first call
        self.static_args: list[Any] = []  # parameters and buffers of the call in progress
        policy = RecordingPolicy(make=partial(record_with_gradients, self._checked_gradients), mutable=lambda: self.static_args)
        self._recorded = RecordedFunction(self._run, "call", "the graph", config, runtime, _StaticArgs(self), policy)
        self._returned_buffers: dict[int, int] = {}  # index of a result: index in `static_args` of the buffer that it is
        self._lock = RLock()  # `static_args` belongs to one call at a time

    def __call__(self, *args: Any) -> Any:
        if self._runtime.is_capturing():  # part of an outer capture, for whose end the holder of the lock may wait
            return self._call(*args)
        with self._lock:
            before, self.static_args = self.static_args, [args[index] for index in self._static]
            try:
                if self._dynamic is None:
                    check_wrappers(self._gradients().parameters)
                    self._dynamic = [index for index in range(len(args)) if index not in self._static]
                results = self._recorded(*[args[index] for index in self._dynamic])
                return self._with_buffers(results) if self._returned_buffers else results
            finally:
                self.static_args = before

    def check(self) -> None:
        """Raise UsageError if a recording cannot train a parameter, for example a parameter with a gradient hook."""
        check_parameters(self._gradients().parameters, self._runtime.device)

    def close(self) -> None:
        """Close all recordings; a graph that is called again is recorded again."""
        self._recorded.close()

    def _gradients(self) -> GradientPolicy:
        named = [(self._names[index], tensor) for index, tensor in zip(self._static, self.static_args, strict=True)]
        trained = ((name, tensor) for name, tensor in named if isinstance(tensor, nn.Parameter) and tensor.requires_grad)
        return GradientPolicy(tuple(trained), self._leaves, in_place=True)

    def _checked_gradients(self) -> GradientPolicy:
        """Return the GradientPolicy of the parameters. Raises UsageError if a DDP or DataParallel module wraps them."""
        gradients = self._gradients()
        check_wrappers(gradients.parameters)
        return gradients

    def _with_buffers(self, results: Any) -> Any:
        """Replace each result that stands for a buffer by the buffer itself: the model may assign it to an attribute."""
        return type(results)(
            self.static_args[self._returned_buffers[index]] if index in self._returned_buffers else result
            for index, result in enumerate(results)
        )

    @contextmanager
    def _leaves(self) -> Iterator[dict[torch.Tensor, torch.Tensor]]:
        """Replace the graph's parameters by new leaf tensors over the same memory; yields a dict from parameter to leaf."""
        before = self.static_args
        leaves = {param: leaf_of(param) for param in before}
        self.static_args = [leaves[param] for param in before]
        try:
            yield leaves
        finally:
            self.static_args = before

    def _run(self, *dynamic_args: Any) -> Any:
        assert self._dynamic is not None
        args: list[Any] = [None] * (len(self._static) + len(dynamic_args))
        static = zip(self._static, self.static_args, strict=True)
        dynamic = zip(self._dynamic, dynamic_args, strict=True)
        for index, arg in (*static, *dynamic):
            args[index] = arg
        results = self._call(*args)
        buffers = {id(tensor): index for index, tensor in enumerate(self.static_args) if not tensor.requires_grad}
        self._returned_buffers = {index: buffers[id(result)] for index, result in enumerate(results) if id(result) in buffers}
        return results


class _StaticArgs(State):
    """The state that recordings depend on: identity, address and requires_grad of parameters and buffers; grad mode."""

    def __init__(self, owner: GradsInPlace) -> None:
        self._owner = owner

    def key(self) -> Key:
        self._owner.check()
        tensors = self._owner.static_args
        return *((id(tensor), tensor.data_ptr(), tensor.requires_grad) for tensor in tensors), torch.is_grad_enabled()

    def held(self) -> Any:
        return list(self._owner.static_args)

    def predicate(self) -> Callable[[], bool]:
        owner, is_enabled, enabled = self._owner, torch.is_grad_enabled, torch.is_grad_enabled()
        tensors, addresses = list(owner.static_args), [tensor.data_ptr() for tensor in owner.static_args]
        indices, has_hooks = list(range(len(addresses))), gradient_hooks_check(tensors)
        need = list(map(needs_gradient, tensors))
        return lambda: (
            all(map(is_, owner.static_args, tensors))
            and _are_at(owner.static_args, addresses, indices)
            and is_enabled() is enabled
            and list(map(needs_gradient, owner.static_args)) == need  # torch 2.11 does not guard requires_grad of parameters
            and not has_hooks()
        )

    def difference(self, before: Key, after: Key) -> str:
        return "the address of a parameter, or its requires_grad,"
