"""Outputs that are valid until the next call, and raise when they are used after it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from dynx._torch.overwritten import Telling, telling
from dynx._trace.userline import Line, line_of_call, spoken_line

HandOut = Callable[[Sequence[torch.Tensor]], list[torch.Tensor]]


def handing_out(outputs: Sequence[torch.Tensor]) -> HandOut:
    """Give what makes new tensors over the memory of outputs, and has those that it made before raise."""
    torch_tells = telling()
    if torch_tells is None or not all(_is_alike(each, torch_tells) for each in outputs):
        return lambda outputs: [each.detach() for each in outputs]
    return _Generations(torch_tells).hand_out


def _is_alike(tensor: torch.Tensor, torch_tells: Telling) -> bool:
    """Tell whether a tensor comes out as it went in; some dtypes do not go in at all."""
    try:
        other = torch_tells.over(tensor)
    except (RuntimeError, BufferError):
        return False
    return (other.dtype, other.size(), other.stride()) == (tensor.dtype, tensor.size(), tensor.stride())


class _Generations:
    def __init__(self, torch_tells: Telling) -> None:
        self._over, self._is_used, self._forbid = torch_tells
        self._storages: list[torch.UntypedStorage] = []
        self._line: Line | None = None  # of the call that gave the last ones

    def hand_out(self, outputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        line = line_of_call()
        for each in self._storages:
            if self._is_used(each):
                self._forbid(each, self._text(line))
        over = self._over
        fresh = [over(each) for each in outputs]
        self._storages, self._line = [each.untyped_storage() for each in fresh], line
        return fresh

    def _text(self, line: Line | None) -> str:
        return (
            f"this is an output of the call at {spoken_line(self._line)}, overwritten by the call at {spoken_line(line)}\n"
            "  outputs='alias' is valid until the next call: clone it before, or use outputs='clone'"
        )
