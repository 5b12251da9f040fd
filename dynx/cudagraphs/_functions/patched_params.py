"""`fast_path` with `params="patch"`: the pointers to parameters are set in the captured graph before each replay."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from dynx.cudagraphs._config import Config
from dynx.cudagraphs._functions.recorded_function import RecordedFunction, RecordingPolicy
from dynx.cudagraphs._notices import warn_or_raise
from dynx.cudagraphs._recording.replayable import Replayable
from dynx.cudagraphs._runtime.interface import Runtime
from dynx.cudagraphs._search.find_modules import modules_of
from dynx.cudagraphs._state.module_state import PatchedParamsState
from dynx.cudagraphs._state.params import replaced_in, tensors_of


class PatchedParams:
    """A callable that passes parameters and buffers to a recorded function as arguments: each replay sets the pointers to them.

    `fallback` returns a recorded function that reads parameters at fixed addresses; it is used if pointers cannot be patched.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        user_function: Callable[..., Any],
        name: str,
        config: Config,
        runtime: Runtime,
        fallback: Callable[[], RecordedFunction],
    ) -> None:
        self._function, self._user_function, self._name, self._config = function, user_function, name, config
        self.forward = user_function  # as in `RecordedFunction`
        self._make_fallback, self._runtime = fallback, runtime
        self._fallback: RecordedFunction | None = None
        self._state = PatchedParamsState(user_function, runtime.device.type)
        policy = RecordingPolicy(on_switch=self._check_patched, patches_params=True)
        self._recorded = RecordedFunction(self._call, "call", name, config, runtime, self._state, policy)
        self._why_not_patched = ""
        self._find_tensors()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._why_not_patched:  # only now: until this call, results of the last call may be in the recording's memory
            self._fall_back()
        if self._fallback is None and not self._is_unchanged():
            self._find_tensors()
        if self._fallback is not None:
            return self._fallback(*args, **kwargs)
        return self._recorded(*self._tensors, *args, **kwargs)

    def record(self, *args: Any, **kwargs: Any) -> None:
        """Call the function uncaptured, and record it for these arguments."""
        if self._fallback is None:
            self._recorded.record(*self._tensors, *args, **kwargs)
            for recording in self._recorded.recordings:
                self._check_patched(recording)
        fallback = self._fall_back() if self._why_not_patched else self._fallback
        if fallback is not None:
            fallback.record(*args, **kwargs)

    @property
    def recordings(self) -> list[Replayable]:
        return (self._fallback or self._recorded).recordings

    def close(self) -> None:
        """Release the memory of the recordings; the next calls record again."""
        (self._fallback or self._recorded).close()

    def _find_tensors(self) -> None:
        """Find the parameters and buffers that the function uses; called again when its modules have changed."""
        self._modules = modules_of(self._user_function)
        self._tensors = tuple(tensors_of(self._modules))
        self._is_unchanged = self._state.predicate()
        device = next((tensor.device for tensor in self._tensors if tensor.device != self._runtime.device), None)
        if device is not None:
            self._why_not_patched = f"a parameter or buffer is on {device}"
            self._fall_back()

    def _check_patched(self, recording: Replayable) -> None:
        self._why_not_patched = self._why_not_patched or recording.why_not_patched

    def _fall_back(self) -> RecordedFunction:
        """Warn, switch to a recorded function that reads parameters at fixed addresses, and return that function."""
        warn_or_raise(f"{self._name} records parameters at fixed addresses, not patched: {self._why_not_patched}", self._config)
        self._recorded.close()
        self._why_not_patched, self._fallback = "", self._make_fallback()
        return self._fallback

    def _call(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function. The first `args` replace its parameters and buffers; the remaining `args` are its arguments."""
        tensors, rest = args[: len(self._tensors)], args[len(self._tensors) :]
        pairs = zip(self._tensors, tensors, strict=True)
        replacements = {param: _like_param(param, tensor) for param, tensor in pairs if param is not tensor}
        with replaced_in(self._modules, replacements):
            result = self._function(*rest, **kwargs)
        current = zip(tensors_of(self._modules), self._tensors, strict=False)
        if any(after is not before for after, before in current):
            self._why_not_patched = "the function itself assigns other parameters or buffers"
        return result


def _like_param(param: torch.Tensor, tensor: torch.Tensor) -> torch.Tensor:
    """Return `tensor`, which replaces `param`, as an nn.Parameter if `param` is an nn.Parameter."""
    if not isinstance(param, nn.Parameter) or isinstance(tensor, nn.Parameter):
        return tensor
    return nn.Parameter(tensor, requires_grad=param.requires_grad)
