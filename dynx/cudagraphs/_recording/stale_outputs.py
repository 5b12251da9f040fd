"""Outputs that are valid until the next call, and raise when they are used after it (`outputs="alias"`)."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import lru_cache
from types import CodeType, FrameType

import torch
from torch.utils.dlpack import from_dlpack, to_dlpack

from dynx._reading.user_location import frame_of_call
from dynx._torch.ops.liveness import StorageGuard, storage_guard

ReturnAliases = Callable[[], list[torch.Tensor]]


def alias_maker(outputs: Sequence[torch.Tensor]) -> ReturnAliases:
    """Return a function that returns new aliases of the outputs, and makes its earlier aliases raise when they are used.

    If a storage cannot be made to raise, the earlier aliases stay readable.
    """
    guard = storage_guard()
    if guard is None or not all(map(_can_have_own_storage, outputs)):
        return lambda: [output.detach() for output in outputs]
    return _Generations(outputs, guard).new_aliases


def _can_have_own_storage(tensor: torch.Tensor) -> bool:
    """Return whether a second storage over the tensor's memory can be made; DLPack does not support all dtypes."""
    try:
        twin = _with_own_storage(tensor)
    except (RuntimeError, BufferError):
        return False
    return (twin.dtype, twin.size(), twin.stride()) == (tensor.dtype, tensor.size(), tensor.stride())


def _with_own_storage(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor over the same memory with a storage of its own, which keeps the memory alive."""
    return from_dlpack(to_dlpack(tensor))


_OWN_REFERENCES = 2  # to a storage that no alias uses: from the tensor in `_shown`, and from the Python object in `_storages`


class _Generations:
    """New aliases of outputs for each call; aliases of earlier calls raise when they are read.

    All aliases of an output share a storage. If an alias is still in use at the next call, this storage is made to raise, and
    new aliases get another storage over the same memory.
    """

    def __init__(self, outputs: Sequence[torch.Tensor], guard: StorageGuard) -> None:
        self._outputs, (self._count, self._forbid) = outputs, guard
        self._shown = [_with_own_storage(output) for output in outputs]
        self._storages = [tensor.untyped_storage() for tensor in self._shown]
        self._handles = [storage._cdata for storage in self._storages]
        # of the frame of the last call; never depth 0: a frame that refers to itself lives until garbage is collected
        self._depth, self._code, self._instruction = 1, alias_maker.__code__, 0

    def new_aliases(self) -> list[torch.Tensor]:
        try:
            frame: FrameType | None = sys._getframe(self._depth)
        except ValueError:
            frame = None
        if frame is None or frame.f_code is not self._code:  # most calls come from the same function as the last
            frame, self._depth = _caller()
        count = self._count
        for handle in self._handles:
            if count(handle) > _OWN_REFERENCES:  # true in a loop with `y = run(x)`: y is the last result until run returns
                self._invalidate(frame)
                break
        if frame is not None:
            self._code, self._instruction = frame.f_code, frame.f_lasti
        return [*map(_alias, self._shown)]

    def _invalidate(self, frame: FrameType | None) -> None:
        """Make aliases that are still in use raise when they are read: the call that `frame` makes overwrites their memory."""
        previous = self._code, self._instruction
        current = previous if frame is None else (frame.f_code, frame.f_lasti)
        for index, handle in enumerate(self._handles):
            if self._count(handle) > _OWN_REFERENCES:
                self._forbid(handle, _text(*previous, *current))
                self._shown[index] = fresh = _with_own_storage(self._outputs[index])
                self._storages[index] = storage = fresh.untyped_storage()
                self._handles[index] = storage._cdata


_alias = torch.Tensor.detach


def _caller() -> tuple[FrameType | None, int]:
    """Return the frame that calls compiled code, and how many frames it is above the caller of this function."""
    frame, depth = frame_of_call()
    return frame, max(1, depth - 1)


@lru_cache(maxsize=64)
def _text(code: CodeType, instruction: int, current_code: CodeType, current_instruction: int) -> str:
    return (
        f"this is an output of the call at {_line(code, instruction)}, "
        f"overwritten by the call at {_line(current_code, current_instruction)}\n"
        "  outputs='alias' is valid until the next call: clone it before that, or use outputs='clone'"
    )


def _line(code: CodeType, instruction: int) -> str:
    lines = (line for start, end, line in code.co_lines() if start <= instruction < end)
    return f"{code.co_filename}:{next(lines, None) or code.co_firstlineno}, in {code.co_qualname}"
