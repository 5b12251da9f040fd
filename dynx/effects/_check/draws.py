"""Run a function in double precision with the random numbers that it drew in single precision.

Generators draw other numbers for other dtypes, so that no element would be comparable.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode


def _is_random(operator: Any) -> bool:
    return torch.Tag.nondeterministic_seeded in operator.tags


_LOW = (torch.bfloat16, torch.float16)


class RecordDraws(TorchDispatchMode):
    """Keeps what each random operator returned, in their order, and the dtypes of 16 bits that operators computed in."""

    def __init__(self) -> None:
        super().__init__()
        self.draws: list[tuple[Any, Any]] = []
        self.low: set[torch.dtype] = set()  # also under autocast, where arguments and results may have 32 bits

    def __torch_dispatch__(self, operator: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = operator(*args, **(kwargs or {}))
        if _is_random(operator):
            self.draws.append((operator, torch.utils._pytree.tree_map_only(torch.Tensor, torch.Tensor.clone, result)))
        if isinstance(result, torch.Tensor) and result.dtype in _LOW:
            self.low.add(result.dtype)
        return result


class ReplayDraws(TorchDispatchMode):
    """Gives random operators what they returned before, in the dtype that they return now.

    Raises:
        IndexError: more random operators run than before.
        ValueError: another random operator runs than before.
    """

    def __init__(self, draws: list[tuple[Any, Any]]) -> None:
        super().__init__()
        self._draws = list(draws)

    def __torch_dispatch__(self, operator: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if not _is_random(operator):
            return operator(*args, **(kwargs or {}))
        recorded, drawn = self._draws.pop(0)
        if recorded is not operator:
            raise ValueError(f"{operator} runs instead of {recorded}")
        if operator is torch.ops.aten.native_dropout.default:
            values, p, _ = args
            return values * drawn[1] / (1 - p if p < 1 else 1), drawn[1]
        result = operator(*args, **(kwargs or {}))
        if isinstance(result, torch.Tensor):
            return result.copy_(drawn)
        for now, before in zip(result, drawn, strict=True):
            now.copy_(before)
        return result
