"""What a capture must not do on the CPU: CUDA does not see it, and a replay would not do it again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from dynx._torch.ops.liveness import WeakMemory
from dynx._torch.ops.schemas import effects_on, schema_of
from dynx.errors import CaptureFailed

_ATEN = torch.ops.aten
_MADE_BY_COPYING = (_ATEN._to_copy.default, _ATEN.clone.default)
_COPIES = (*_MADE_BY_COPYING, _ATEN.copy_.default, _ATEN._foreach_copy_.default)


class NothingOnCpu(TorchDispatchMode):
    """Raises CaptureFailed where an operator changes tensors on the CPU, goes by their values, or draws random numbers there.

    Tensors that Python makes in a capture, such as `torch.tensor(2.0)`, are numbers in another form, and stay as they are: the
    capture of a backward pass reads those that the forward pass saved. Copies between devices are left to CUDA, which takes
    those with pinned memory into the graph.
    """

    supports_higher_order_operators = True

    def __init__(self) -> None:
        super().__init__()
        self._numbers: dict[int, torch.Tensor] = {}  # made in the capture, by the address of memory that they keep

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        return True  # what is compiled runs as it does without

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        _keep([each for each in self._numbers.values() if _has_memory(each)])

    def __torch_dispatch__(self, operator: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        tensors = _tensors((args, kwargs))
        given = [each for each in tensors if _is_on_cpu(each) and each.numel()]
        if operator is _ATEN.lift_fresh.default:
            self._know(given)
        is_between = operator in _COPIES and len(given) < len(tensors)
        if given and not is_between:
            self._check(operator, args, kwargs)
        are_known = _reads_no_values(operator) or all(map(self._is_known, given))
        out = operator(*args, **kwargs)
        made = [each for each in _tensors(out) if _is_on_cpu(each)]
        is_drawn = torch.Tag.nondeterministic_seeded in getattr(operator, "tags", ())
        if made and is_drawn and len(given) == len(tensors):  # or the device draws, and gives its state besides
            raise CaptureFailed(f"{operator} draws random numbers on the CPU, once only\n  draw them on the device")
        if is_between:  # what a replay puts there is not known
            for each in given:
                self._numbers.pop(_address(each), None)
        elif are_known:
            self._know(made)
        return out

    def _check(self, operator: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        schema = schema_of(operator)
        if schema is None:
            return  # of what is in a higher-order operator nothing is known
        is_unread = operator.is_view or operator in _MADE_BY_COPYING  # the copy is as unknown as what it is of
        is_read = not (is_unread or _reads_no_values(operator))
        for argument, is_written, _ in effects_on(schema, args, kwargs):
            for each in (each for each in _tensors(argument) if _is_on_cpu(each) and each.numel()):
                if is_written and _address(each) not in self._numbers:
                    raise CaptureFailed(f"{operator} changes a tensor on the CPU, which a replay would not\n  {_ADVICE}")
                if is_read and not self._is_known(each):
                    raise CaptureFailed(f"{operator} reads a tensor on the CPU, whose value would stay as it is\n  {_ADVICE}")

    def _know(self, tensors: list[torch.Tensor]) -> None:
        self._numbers |= {_address(each): each for each in tensors}

    def _is_known(self, tensor: torch.Tensor) -> bool:
        address = _address(tensor)
        return address in self._numbers or (address in _of_captures and _of_captures[address].is_there())


_ADVICE = "keep it on the device"
_of_captures: dict[int, WeakMemory] = {}  # numbers, by address


def _keep(numbers: list[torch.Tensor]) -> None:
    """Know the numbers of a capture in others, as long as they are there."""
    for address in [address for address, each in _of_captures.items() if not each.is_there()]:
        del _of_captures[address]
    _of_captures.update({_address(each): WeakMemory(each) for each in numbers})


def _tensors(values: Any) -> list[torch.Tensor]:
    return [each for each in tree_leaves(values) if isinstance(each, torch.Tensor)]


def _is_on_cpu(tensor: torch.Tensor) -> bool:
    return tensor.device.type == "cpu"


def _reads_no_values(operator: Any) -> bool:
    """Tell whether an operator goes by the layout of what it is given: `zeros_like`, `new_empty`."""
    name = "" if (schema := schema_of(operator)) is None else schema.name.removeprefix("aten::")
    return name.endswith("_like") or name.startswith("new_") or name == "is_pinned"


def _has_memory(tensor: torch.Tensor) -> bool:
    return tensor.layout is torch.strided


def _address(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr() if _has_memory(tensor) else id(tensor)
