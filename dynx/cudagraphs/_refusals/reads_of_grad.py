"""Detect that a function reads a `.grad` that it did not compute: a replay would read the tensor of the capture."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from dynx._reading.user_location import owner_of_file
from dynx.cudagraphs._refusals.python_draws import place_of


class ReadsOfGrad(TorchFunctionMode):
    """A torch function mode that notes where user code reads a `.grad` that is still as it was before the function was called.

    Replays do not check that `.grad` is still the tensor that the capture read. Reads by torch itself are not noted.

    Attributes:
        found: A text that names the line of the first read; "" if there was none.
    """

    def __init__(self, tensors: Iterable[torch.Tensor]) -> None:
        super().__init__()
        self._before = {id(tensor): tensor.grad for tensor in tensors if tensor.is_leaf}
        self.found = ""

    def __torch_function__(self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if func == _READ_GRAD and not self.found and self._before.get(id(args[0]), self) is result:
            reader = sys._getframe(1)
            if owner_of_file(reader.f_code.co_filename).kind != "torch":
                self.found = place_of(reader) or " of a tensor"
        return result


_READ_GRAD = torch.Tensor.grad.__get__
