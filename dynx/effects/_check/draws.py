"""Run a function in double precision with the random numbers that it drew in single precision.

A generator draws different numbers for each dtype, so otherwise no element would be comparable.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode


def _is_random(operator: Any) -> bool:
    return torch.Tag.nondeterministic_seeded in operator.tags


_LOW = (torch.bfloat16, torch.float16)


class RecordDraws(TorchDispatchMode):
    """A dispatch mode that records the results of random operators, in order, and the 16-bit dtypes that operators returned."""

    def __init__(self) -> None:
        super().__init__()
        self.draws: list[tuple[Any, Any]] = []
        self.low: set[torch.dtype] = set()  # includes autocast, under which a function may take and return 32 bits

    def __torch_dispatch__(self, operator: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = operator(*args, **(kwargs or {}))
        if _is_random(operator):
            self.draws.append((operator, torch.utils._pytree.tree_map_only(torch.Tensor, torch.Tensor.clone, result)))
        if isinstance(result, torch.Tensor) and result.dtype in _LOW:
            self.low.add(result.dtype)
        return result


class ReplayDraws(TorchDispatchMode):
    """A dispatch mode in which random operators return the recorded results, converted to the dtype that each would return.

    Raises:
        IndexError: More random operators run than were recorded.
        ValueError: A random operator runs where another one was recorded.
    """

    def __init__(self, draws: list[tuple[Any, Any]]) -> None:
        super().__init__()
        self._draws = list(draws)

    def __torch_dispatch__(self, operator: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if not _is_random(operator):
            return operator(*args, **(kwargs or {}))
        recorded, drawn = self._draws.pop(0)
        if recorded is not operator:
            raise ValueError(f"expected the random operator {recorded}, as in the recorded run, but {operator} ran")
        if operator is torch.ops.aten.native_dropout.default:
            values, p, _ = args
            return values * drawn[1] / (1 - p if p < 1 else 1), drawn[1]
        result = operator(*args, **(kwargs or {}))
        if isinstance(result, torch.Tensor):
            return result.copy_(drawn)
        for now, before in zip(result, drawn, strict=True):
            now.copy_(before)
        return result
