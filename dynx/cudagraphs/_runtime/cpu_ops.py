"""Rejection of operators on CPU tensors during a CUDA capture: CUDA does not capture them, so a replay would not run them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from dynx._reading.tensors import has_memory, tensors_in
from dynx._torch.ops.liveness import WeakMemory
from dynx._torch.ops.schemas import effects_on, schema_of
from dynx.cudagraphs._operator_mode import OperatorMode
from dynx.errors import CaptureFailed

_ATEN = torch.ops.aten
_CLONES = (_ATEN._to_copy.default, _ATEN.clone.default)
_COPIES = (*_CLONES, _ATEN.copy_.default, _ATEN._foreach_copy_.default)


class RejectCpuOps(OperatorMode):
    """A dispatch mode that raises CaptureFailed if an operator mutates or reads CPU tensors or draws random numbers on the CPU.

    CPU tensors that Python code creates during a capture, such as `torch.tensor(2.0)`, are constants: the capture may read and
    mutate them, and later captures may read them, such as the capture of a backward pass for which they were saved. Copies
    between CPU and device are not rejected here: CUDA captures copies of pinned memory, and raises for other copies.
    """

    def __init__(self) -> None:
        super().__init__()
        self._constants: dict[int, torch.Tensor] = {}  # created during the capture; by the address of their memory

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        _remember([tensor for tensor in self._constants.values() if has_memory(tensor)])

    def __torch_dispatch__(self, operator: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        tensors = tensors_in((args, kwargs))
        on_cpu = [tensor for tensor in tensors if tensor.is_cpu and tensor.numel()]
        if operator is _ATEN.lift_fresh.default:
            self._add_constants(on_cpu)
        is_device_copy = operator in _COPIES and len(on_cpu) < len(tensors)
        if on_cpu and not is_device_copy:
            self._check(operator, args, kwargs)
        are_constant = _reads_no_values(operator) or all(map(self._is_constant, on_cpu))
        out = operator(*args, **kwargs)
        outputs_on_cpu = [tensor for tensor in tensors_in(out) if tensor.is_cpu]
        is_random = torch.Tag.nondeterministic_seeded in getattr(operator, "tags", ())
        if outputs_on_cpu and is_random and len(on_cpu) == len(tensors):  # with inputs on the device, the device draws
            raise CaptureFailed(
                f"{operator} draws random numbers on the CPU, which a replay would not do\n  generate them on the device"
            )
        if is_device_copy:  # not constant: a replay may copy other values to the CPU
            for tensor in on_cpu:
                self._constants.pop(_address(tensor), None)
        elif are_constant:
            self._add_constants(outputs_on_cpu)
        return out

    def _check(self, operator: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """Raise CaptureFailed if an operator mutates or reads a CPU tensor that is not a constant (see the class)."""
        schema = schema_of(operator)
        if schema is None:
            return  # a higher-order operator: what its body does is not known
        # a clone is constant only if its source is, so reads of the clone are checked instead
        is_read = not (operator.is_view or operator in _CLONES or _reads_no_values(operator))
        for argument, is_written, _ in effects_on(schema, args, kwargs):
            for tensor in (leaf for leaf in tensors_in(argument) if leaf.is_cpu and leaf.numel()):
                if is_written and _address(tensor) not in self._constants:
                    raise CaptureFailed(f"{operator} changes a CPU tensor, and a replay would not\n  keep it on the device")
                if is_read and not self._is_constant(tensor):
                    raise CaptureFailed(
                        f"{operator} reads a CPU tensor, and every replay would use its value at capture time\n"
                        "  keep the tensor on the device"
                    )

    def _add_constants(self, tensors: list[torch.Tensor]) -> None:
        self._constants |= {_address(tensor): tensor for tensor in tensors}

    def _is_constant(self, tensor: torch.Tensor) -> bool:
        address = _address(tensor)
        return address in self._constants or (address in _earlier_constants and _earlier_constants[address].is_alive())


_earlier_constants: dict[int, WeakMemory] = {}  # constants of earlier captures, by the address of their memory


def _remember(constants: list[torch.Tensor]) -> None:
    """Store weak references to the CPU constants of a capture: later captures may read them while their memory is alive."""
    for address in [address for address, memory in _earlier_constants.items() if not memory.is_alive()]:
        del _earlier_constants[address]
    _earlier_constants.update({_address(tensor): WeakMemory(tensor) for tensor in constants})


def _reads_no_values(operator: Any) -> bool:
    """Return whether an operator reads only the layout of its arguments, like `zeros_like` and `new_empty`."""
    name = "" if (schema := schema_of(operator)) is None else schema.name.removeprefix("aten::")
    return name.endswith("_like") or name.startswith("new_") or name == "is_pinned"


def _address(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr() if has_memory(tensor) else id(tensor)
