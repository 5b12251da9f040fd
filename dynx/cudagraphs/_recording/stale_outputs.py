"""Outputs that are valid until the next call, and raise when they are used after it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import lru_cache
from types import CodeType, FrameType

import torch
from torch.utils.dlpack import from_dlpack, to_dlpack

from dynx._torch.ops.storage_guard import Telling, telling
from dynx._trace.user_location import frame_of_call

HandOut = Callable[[], list[torch.Tensor]]


def handing_out(outputs: Sequence[torch.Tensor]) -> HandOut:
    """Give what makes aliases of outputs, and has those that it made before raise, if somebody still has them."""
    torch_tells = telling()
    if torch_tells is None or not all(map(_can_be_told, outputs)):
        return lambda: [each.detach() for each in outputs]
    return _Generations(outputs, torch_tells).hand_out


def _can_be_told(tensor: torch.Tensor) -> bool:
    """Tell whether another storage can be made for a tensor; DLPack does not take all dtypes."""
    try:
        other = _over(tensor)
    except (RuntimeError, BufferError):
        return False
    return (other.dtype, other.size(), other.stride()) == (tensor.dtype, tensor.size(), tensor.stride())


def _over(tensor: torch.Tensor) -> torch.Tensor:
    """Give a tensor over the same memory, with a storage of its own, which keeps the memory alive."""
    return from_dlpack(to_dlpack(tensor))


_OURS = 2  # who hold a storage that nobody else has: a tensor, and the storage in Python


class _Generations:
    """Aliases share a storage with what is shown here; it is made anew when it has to raise."""

    def __init__(self, outputs: Sequence[torch.Tensor], torch_tells: Telling) -> None:
        self._outputs, (self._count, self._forbid) = outputs, torch_tells
        self._shown = [_over(each) for each in outputs]
        self._storages = [each.untyped_storage() for each in self._shown]
        self._at = [each._cdata for each in self._storages]
        # of the frame that called last; never 0, since a frame that knows itself lasts until garbage is collected
        self._depth, self._code, self._instruction = 1, handing_out.__code__, 0

    def hand_out(self) -> list[torch.Tensor]:
        try:
            frame: FrameType | None = sys._getframe(self._depth)
        except ValueError:
            frame = None
        if frame is None or frame.f_code is not self._code:  # most calls are made from where the last one was
            frame, self._depth = _caller()
        count = self._count
        for each in self._at:
            if count(each) > _OURS:  # also in `y = run(x)`, until it returns
                self._overwrite(frame)
                break
        if frame is not None:
            self._code, self._instruction = frame.f_code, frame.f_lasti
        return [*map(_alias, self._shown)]

    def _overwrite(self, frame: FrameType | None) -> None:
        """Have those raise that somebody still has, now that the call of a frame is under way."""
        before = self._code, self._instruction
        now = before if frame is None else (frame.f_code, frame.f_lasti)
        for index, at in enumerate(self._at):
            if self._count(at) > _OURS:
                self._forbid(at, _text(*before, *now))
                self._shown[index] = fresh = _over(self._outputs[index])
                self._storages[index] = storage = fresh.untyped_storage()
                self._at[index] = storage._cdata


_alias = torch.Tensor.detach


def _caller() -> tuple[FrameType | None, int]:
    """Give the frame that calls compiled code, and how far it is from who asks."""
    frame, depth = frame_of_call()
    return frame, max(1, depth - 1)


@lru_cache(maxsize=64)
def _text(code: CodeType, instruction: int, code_now: CodeType, instruction_now: int) -> str:
    return (
        f"this is an output of the call at {_line(code, instruction)}, "
        f"overwritten by the call at {_line(code_now, instruction_now)}\n"
        "  outputs='alias' is valid until the next call: clone it before, or use outputs='clone'"
    )


def _line(code: CodeType, instruction: int) -> str:
    lines = (line for start, end, line in code.co_lines() if start <= instruction < end)
    return f"{code.co_filename}:{next(lines, None) or code.co_firstlineno}, in {code.co_qualname}"
