"""Undo what a call with examples writes: a decoder, for example, must not be one token further because it was recorded."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from dynx._torch.ops.schemas import effects_on, schema_of


class RestoredMemory(TorchDispatchMode):
    """Restores at its end the memory that operators wrote to inside of the context, besides memory that they allocated there.

    Not seen are kernels that are no operators, as in compiled functions: what these may write is passed as `tensors`.

    Args:
        tensors: Tensors that are restored whatever writes to them.
    """

    supports_higher_order_operators = True

    def __init__(self, tensors: Iterable[torch.Tensor]) -> None:
        super().__init__()
        self._saved: dict[int, tuple[torch.UntypedStorage, torch.UntypedStorage]] = {}  # by address: a storage, and a copy
        self._allocated: set[int] = set()  # addresses
        for tensor in tensors:
            self._save(tensor)

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        return True  # compiled functions run as they do without the mode

    def __torch_dispatch__(self, operator: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        schema = schema_of(operator)
        for argument, is_written, _ in effects_on(schema, args, kwargs) if schema is not None else ():
            for tensor in _tensors(argument) if is_written else ():
                self._save(tensor)
        given = {_address(tensor) for tensor in _tensors((args, kwargs))}
        result = operator(*args, **kwargs)
        self._allocated.update(_address(tensor) for tensor in _tensors(result) if _address(tensor) not in given)
        return result

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        for storage, copy in self._saved.values():
            storage.copy_(copy)
        self._saved.clear()

    def _save(self, tensor: torch.Tensor) -> None:
        address = _address(tensor)
        if address and address not in self._allocated and address not in self._saved:
            storage = tensor.untyped_storage()
            self._saved[address] = storage, storage.clone()


def _tensors(values: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(values) if isinstance(leaf, torch.Tensor)]


def _address(tensor: torch.Tensor) -> int:
    """Return the address of a tensor's memory; 0 for one without memory of its own, such as a sparse one."""
    try:
        return tensor.untyped_storage().data_ptr() if tensor.layout is torch.strided and not tensor.is_meta else 0
    except (NotImplementedError, RuntimeError):
        return 0
