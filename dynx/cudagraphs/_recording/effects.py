"""The effects of a run of a function (results, written memory, random numbers), and how two runs differ, byte by byte."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, repeat
from typing import Any, NamedTuple

import torch

from dynx._reading.tensors import has_memory
from dynx.cudagraphs._recording.random_states import RandomStates, is_same
from dynx.cudagraphs._recording.restored_memory import Bytes, bytes_in, bytes_of


class Effects(NamedTuple):
    """The results or error of a run, with copies of the RNG states and of the written memory from before and after the run."""

    results: list[Any]
    written: Bytes
    drawn: RandomStates
    before: Bytes
    drawn_before: RandomStates
    error: Exception | None = None

    def put_back(self) -> None:
        self.written.put_back()
        self.drawn.put_back()

    def undo(self) -> None:
        self.before.put_back()
        self.drawn_before.put_back()


def differences(expected: Effects, found: Effects, other: Effects | None = None) -> Iterator[str]:
    """Yield a text for each difference between an uncaptured run (`expected`) and a replay or another run (`found`).

    `other` is an uncaptured run with other bytes in uninitialized memory. Values that differ between `expected` and `other`
    depend on that memory, and are not compared.
    """
    if expected.error is not None or found.error is not None:
        if text_of(expected.error) != text_of(found.error):
            yield f"the uncaptured run raises {text_of(expected.error)}, the replay raises {text_of(found.error)}"
        return
    if len(expected.results) != len(found.results):
        yield f"{len(found.results)} results instead of {len(expected.results)}"
    others = chain(() if other is None else other.results, repeat(None))
    for index, (value, actual, varied) in enumerate(zip(expected.results, found.results, others, strict=False)):
        if difference := _difference(value, actual, varied):
            yield f"result {index}, {difference}"
    own = {value.untyped_storage().data_ptr() for value in found.results if has_memory(value)}
    written = {} if other is None else {storage.data_ptr(): value for storage, value in other.written.copies}
    for (storage, value), (_, actual) in zip(expected.written.copies, found.written.copies, strict=False):
        address = storage.data_ptr()
        if address not in own and _count(_blocks(value), _blocks(actual), _blocks(written.get(address))):
            yield f"memory of {storage.nbytes()} bytes that the function writes to"
    for what, state in expected.drawn.states.items():
        if not is_same(state, found.drawn.states.get(what, state)):
            yield f"the RNG state of {what} differs"
    if not all(map(torch.equal, expected.drawn.of_generators, found.drawn.of_generators)):
        yield "the RNG state of a torch.Generator differs"


def text_of(error: Exception | None) -> str:
    """Return the type of an exception and the first line of its text; "nothing" for None."""
    if error is None:
        return "nothing"
    first, *_ = [*str(error).splitlines(), ""]
    return f"{type(error).__name__}: {first}" if first else type(error).__name__


def _difference(value: Any, actual: Any, varied: Any) -> str:
    """Return how `actual` differs from `value`; "" if not. Elements in which `varied` differs from `value` are ignored."""
    if not isinstance(value, torch.Tensor) or not isinstance(actual, torch.Tensor):
        is_same = type(value) is type(actual) and (value is actual or isinstance(value, torch.Tensor) or value == actual)
        return "" if is_same else f"{actual!r} instead of {value!r}"
    what = f"a {value.dtype} tensor of shape {list(value.shape)}"
    if (value.shape, value.dtype) != (actual.shape, actual.dtype):
        return f"a {actual.dtype} tensor of shape {list(actual.shape)} instead of {what}"
    if not has_memory(value):
        return ""
    is_like = isinstance(varied, torch.Tensor) and (value.shape, value.dtype) == (varied.shape, varied.dtype)
    count = _count(_elements(value), _elements(actual), _elements(varied) if is_like else None)
    return f"{what}: {count} of {value.numel()} elements differ" if count else ""


def _count(expected: torch.Tensor | None, found: torch.Tensor | None, varied: torch.Tensor | None) -> int:
    """Return how many rows (elements or blocks) differ; rows in which `varied` differs from `expected` do not count."""
    if expected is None or found is None or torch.equal(expected, found):
        return 0
    differ = (expected != found).any(1)
    return int((differ if varied is None else differ & (expected == varied).all(1)).sum())


def _elements(tensor: torch.Tensor) -> torch.Tensor:
    """Return the values of a tensor as rows of bytes, one for each element."""
    return bytes_in(tensor).view(-1, tensor.element_size()) if tensor.numel() else torch.empty(0, 1, dtype=torch.uint8)


_BLOCK = 16  # bytes, the size of the largest dtype: the dtype of the elements of a storage is not known


def _blocks(storage: torch.UntypedStorage | None) -> torch.Tensor | None:
    """Return the bytes of a storage as rows of 16 bytes, the last one padded with zeros; None if `storage` is None."""
    if storage is None:
        return None
    plain = bytes_of(storage)
    return torch.nn.functional.pad(plain, (0, -plain.numel() % _BLOCK)).view(-1, _BLOCK)
