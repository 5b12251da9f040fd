"""Restore the memory that a call writes to: when a decoder is recorded with examples, its cache must not gain a token."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import torch

from dynx._reading.tensors import has_memory, tensors_in
from dynx._torch.ops.liveness import is_used
from dynx._torch.ops.schemas import effects_on, schema_of
from dynx.cudagraphs._operator_mode import OperatorMode


class Bytes(NamedTuple):
    """Storages, each with a copy of its bytes at a point in time."""

    copies: list[tuple[torch.UntypedStorage, torch.UntypedStorage]]

    def of_now(self) -> Bytes:
        """Return the same storages with copies of their current bytes."""
        return Bytes([(storage, storage.clone()) for storage, _ in self.copies])

    def equals(self, other: Bytes) -> bool:
        """Return whether the copies of the same storages in `self` and `other` have equal bytes."""
        pairs = zip(self.copies, other.copies, strict=True)
        return all(torch.equal(bytes_of(copy), bytes_of(another)) for (_, copy), (_, another) in pairs)

    def put_back(self) -> None:
        for storage, copy in self.copies:
            storage.copy_(copy)


def bytes_of(storage: torch.UntypedStorage) -> torch.Tensor:
    """Return a uint8 tensor over the memory of a storage."""
    return torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)


class RestoredMemory(OperatorMode):
    """A dispatch mode that on exit restores the memory that operators wrote to, except memory that they allocated in the mode.

    It does not see writes of kernels that are not operators, as in compiled functions, nor writes that an operator's schema
    does not declare, such as the statistics of batch normalization: pass tensors that these may write to as `tensors`.

    Args:
        tensors: Tensors that are always restored.
        remembers: Keep copies of the bytes before and after the writes, in `before` and `written`.

    Attributes:
        before: The restored memory, with its bytes before the context; empty without `remembers`.
        written: The same memory, with its bytes at the end of the context.
    """

    def __init__(self, tensors: Iterable[torch.Tensor], *, remembers: bool = False) -> None:
        super().__init__()
        self._saved: dict[int, tuple[torch.UntypedStorage, torch.UntypedStorage]] = {}  # by address: a storage and its copy
        self._remembers = remembers
        self.before, self.written = Bytes([]), Bytes([])
        self._allocated: set[int] = set()  # addresses
        for tensor in tensors_in(list(tensors)):
            self._save(tensor)

    def __torch_dispatch__(self, operator: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        schema, arguments = schema_of(operator), tensors_in((args, kwargs))
        for argument, is_written, _ in effects_on(schema, args, kwargs) if schema is not None else ():
            for tensor in tensors_in(argument) if is_written else ():
                self._save(tensor)
        given = set(map(_address, arguments))
        result = operator(*args, **kwargs)
        self._allocated.update(_address(tensor) for tensor in tensors_in(result) if _address(tensor) not in given)
        return result

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        # memory that nothing else uses need not be restored
        before = Bytes([(storage, copy) for storage, copy in self._saved.values() if is_used(storage)])
        if self._remembers:
            self.before, self.written = before, before.of_now()
        before.put_back()
        self._saved.clear()

    def _save(self, tensor: torch.Tensor) -> None:
        address = _address(tensor)
        if address and address not in self._allocated and address not in self._saved:
            storage = tensor.untyped_storage()
            self._saved[address] = storage, storage.clone()


def _address(tensor: torch.Tensor) -> int:
    """Return the address of a tensor's memory; 0 for a tensor without memory of its own, such as a sparse tensor."""
    try:
        return tensor.untyped_storage().data_ptr() if has_memory(tensor) else 0
    except (NotImplementedError, RuntimeError):
        return 0


def bytes_in(tensor: torch.Tensor) -> torch.Tensor:
    """Return the values of a tensor as bytes, so that NaN compares equal to NaN."""
    if tensor.is_quantized:  # torch (2.13) crashes where these are viewed as bytes
        tensor = tensor.int_repr()
    plain = tensor.detach().resolve_conj().resolve_neg().contiguous().view(-1)
    return plain.view(torch.uint8) if plain.numel() else plain
