"""Notice that a function reads `.grad` of tensors that are not its own: a replay would read the gradients of the capture."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from dynx._reading.user_location import owner_of_file
from dynx.cudagraphs._refusals.python_draws import place_of


class ReadsOfGrad(TorchFunctionMode):
    """Notes where user code reads `.grad` of a tensor that is as before the call: the state does not include gradients.

    A gradient that the function itself has computed is not noted, and neither is what torch reads, as in `zero_grad`.

    Attributes:
        found: The line of the first read, in words; "" if there was none.
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
