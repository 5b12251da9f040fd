"""Which runtime a configuration asks for."""

from __future__ import annotations

from typing import Any

import torch

from dynx.cudagraphs._config import Config
from dynx.cudagraphs._runtime.cuda import Cuda
from dynx.cudagraphs._runtime.emulator import Emulator
from dynx.cudagraphs._runtime.interface import Runtime
from dynx.errors import UsageError


def has_cuda() -> bool:
    return torch.cuda.is_available()


def check_bindings(config: Config, runtime: Runtime | None) -> None:
    """Raise UsageError where graphs are to be told addresses, and cannot be."""
    asked = [name for name in ("inputs", "params") if getattr(config, name) in ("memcpy_node", "patch")]
    if asked and runtime is not None and not runtime.copies_in_graph():
        how = f"{asked[0]}={getattr(config, asked[0])!r}"
        raise UsageError(f"{how} needs cuda-bindings\n  pip install 'dynx[cuda]', or leave it out")


def runtime_of(config: Config, **options: Any) -> Runtime | None:
    """Give the runtime of a configuration, with options of CUDA's; None where "auto" finds no CUDA device."""
    if config.runtime == "emulator":
        return Emulator()
    if config.runtime == "cuda" or has_cuda():
        return Cuda(**options)
    return None
