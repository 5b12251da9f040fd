"""What a capture must not do on the CPU: CUDA does not see it, and a replay would not do it again."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from dynx._torch.schemas import schema_of
from dynx.errors import CaptureFailed

_ATEN = torch.ops.aten
_MADE_BY_COPYING = (_ATEN._to_copy.default, _ATEN.clone.default)
_COPIES = (*_MADE_BY_COPYING, _ATEN.copy_.default, _ATEN._foreach_copy_.default)


class NothingOnCpu(TorchDispatchMode):
    """Raises CaptureFailed where an operator changes tensors on the CPU, goes by their values, or draws random numbers there.

    Tensors that Python makes in the capture, such as `torch.tensor(2.0)`, are numbers in another form, and stay what they are.
    Copies between devices are left to CUDA, which takes those with pinned memory into the graph.
    """

    supports_higher_order_operators = True

    def __init__(self) -> None:
        super().__init__()
        self._numbers: dict[int, torch.Tensor] = {}  # made in the capture, by the address of memory that they keep

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        return True  # what is compiled runs as it does without

    def __torch_dispatch__(self, operator: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        tensors = _tensors((args, kwargs))
        given = [each for each in tensors if _is_on_cpu(each)]
        if operator is _ATEN.lift_fresh.default:
            self._know(given)
        are_known = all(_address(each) in self._numbers for each in given)
        is_between = operator in _COPIES and len(given) < len(tensors)
        if not (are_known or is_between or operator in _MADE_BY_COPYING or _is_view(operator)):
            raise CaptureFailed(_why(operator))
        out = operator(*args, **kwargs)
        made = [each for each in _tensors(out) if _is_on_cpu(each)]
        if made and torch.Tag.nondeterministic_seeded in getattr(operator, "tags", ()):
            raise CaptureFailed(f"{operator} draws random numbers on the CPU, once only\n  draw them on the device")
        if is_between:  # what a replay puts there is not known
            for each in made:
                self._numbers.pop(_address(each), None)
        elif are_known:
            self._know(made)
        return out

    def _know(self, tensors: list[torch.Tensor]) -> None:
        self._numbers |= {_address(each): each for each in tensors}


def _is_view(operator: Any) -> bool:
    """Tell whether an operator looks at no values; of higher-order ones that is not known."""
    return schema_of(operator) is None or bool(operator.is_view)


def _why(operator: Any) -> str:
    if schema_of(operator).is_mutable:
        return f"{operator} changes a tensor on the CPU, which a replay would not\n  keep it on the device"
    return f"{operator} reads a tensor on the CPU, whose value would stay as it is\n  keep it on the device"


def _tensors(values: Any) -> list[torch.Tensor]:
    return [each for each in tree_leaves(values) if isinstance(each, torch.Tensor)]


def _is_on_cpu(tensor: torch.Tensor) -> bool:
    return tensor.device.type == "cpu"


def _address(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr() if tensor.layout is torch.strided else id(tensor)
