"""A fast path whose graphs are told where the parameters of its modules are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from dynx.cudagraphs._config import Config
from dynx.cudagraphs._functions.recorded_function import Recorded
from dynx.cudagraphs._notices import tell
from dynx.cudagraphs._runtime.interface import Runtime
from dynx.cudagraphs._state.find_modules import modules_of
from dynx.cudagraphs._state.module_state import MovingState
from dynx.cudagraphs._state.params import replaced_in, tensors_of


class Told:
    """Gives a recorded function the parameters and buffers of its modules as its first arguments.

    `plain` is the function that uses the modules. Where a graph cannot be told, `otherwise` makes the function that records
    parameters where they lie.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        plain: Callable[..., Any],
        name: str,
        config: Config,
        runtime: Runtime,
        otherwise: Callable[[], Recorded],
    ) -> None:
        self._function, self._plain, self._name, self._config = function, plain, name, config
        self._otherwise, self._runtime = otherwise, runtime
        self._instead: Recorded | None = None
        self._state = MovingState(plain, runtime.device.type)
        self._recorded = Recorded(self._call, "call", name, replace(config, inputs="patch"), runtime, self._state)
        self._recorded.on_switch = self._note
        self._why_not = ""
        self._look()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._why_not:  # not before, since results may lie in the recording until now
            self._stop()
        if self._instead is None and not self._are_same():
            self._look()
        if self._instead is not None:
            return self._instead(*args, **kwargs)
        return self._recorded(*self._tensors, *args, **kwargs)

    def record(self, *args: Any, **kwargs: Any) -> None:
        """Record for such arguments."""
        if self._instead is None:
            self._recorded.record(*self._tensors, *args, **kwargs)
            for each in self._recorded.recordings:
                self._note(each)
        instead = self._stop() if self._why_not else self._instead
        if instead is not None:
            instead.record(*args, **kwargs)

    @property
    def recordings(self) -> list[Any]:
        return (self._instead or self._recorded).recordings

    def close(self) -> None:
        """Give back the memory of its recordings; it records anew when it is called."""
        (self._instead or self._recorded).close()

    def _look(self) -> None:
        self._modules = modules_of(self._plain)
        self._tensors = tuple(tensors_of(self._modules))
        self._are_same = self._state.check()
        elsewhere = next((each.device for each in self._tensors if each.device != self._runtime.device), None)
        if elsewhere is not None:
            self._why_not = f"one of them is on {elsewhere}"
            self._stop()

    def _note(self, recording: Any) -> None:
        self._why_not = self._why_not or recording.why_not_patched

    def _stop(self) -> Recorded:
        """Have parameters recorded where they lie from now on."""
        tell(f"{self._name} records parameters where they lie: {self._why_not}", self._config)
        self._recorded.close()
        self._why_not, self._instead = "", self._otherwise()
        return self._instead

    def _call(self, *args: Any, **kwargs: Any) -> Any:
        given, rest = args[: len(self._tensors)], args[len(self._tensors) :]
        others = {mine: _like(mine, each) for mine, each in zip(self._tensors, given, strict=True) if mine is not each}
        with replaced_in(self._modules, others):
            result = self._function(*rest, **kwargs)
        if any(one is not other for one, other in zip(tensors_of(self._modules), self._tensors, strict=False)):
            self._why_not = "it puts others in their place itself"
        return result


def _like(parameter: torch.Tensor, tensor: torch.Tensor) -> torch.Tensor:
    """Have a tensor look like the parameter that it stands for."""
    if not isinstance(parameter, nn.Parameter) or isinstance(tensor, nn.Parameter):
        return tensor
    return nn.Parameter(tensor, requires_grad=parameter.requires_grad)
