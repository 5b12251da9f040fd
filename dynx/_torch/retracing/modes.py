"""The grad mode and the inference mode of a call, which guards read, so that it can be traced again in them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple


class Modes(NamedTuple):
    """Whether gradients and inference mode are on."""

    grad: bool
    inference: bool


def modes_now() -> Modes:
    """Return the modes of this thread."""
    import torch

    return Modes(torch.is_grad_enabled(), torch.is_inference_mode_enabled())


@contextmanager
def in_modes(modes: Modes) -> Iterator[None]:
    """Put this thread into these modes inside the context."""
    import torch

    if modes == modes_now():
        yield
        return
    with torch.inference_mode(modes.inference), torch.set_grad_enabled(modes.grad):
        yield
