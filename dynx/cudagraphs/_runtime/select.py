"""Select the runtime, CUDA or the emulator, that a configuration asks for."""

from __future__ import annotations

import torch

from dynx.cudagraphs._config import Config
from dynx.cudagraphs._runtime.cuda import CudaRuntime
from dynx.cudagraphs._runtime.emulator import Emulator
from dynx.cudagraphs._runtime.interface import MemoryPool, Runtime
from dynx.errors import UsageError


def has_cuda() -> bool:
    """Return whether torch finds a CUDA device."""
    return torch.cuda.is_available()


def check_bindings(config: Config, runtime: Runtime | None) -> None:
    """Raise UsageError if the options `inputs` or `params` of `config` need cuda-bindings, but the package is not installed."""
    options = [name for name in ("inputs", "params") if getattr(config, name) in ("memcpy_node", "patch")]
    if options and runtime is not None and not runtime.can_set_memcpy_nodes():
        option = f"{options[0]}={getattr(config, options[0])!r}"
        raise UsageError(f"{option} needs cuda-bindings\n  pip install 'dynx[cuda]', or remove the option")


def select_runtime(
    config: Config,
    *,
    device: torch.device | None = None,
    pool: MemoryPool = None,
    stream: torch.cuda.Stream | None = None,
    capture_error_mode: str = "thread_local",
) -> Runtime | None:
    """Return the runtime of a configuration; None if `runtime="auto"` and there is no CUDA device.

    The other arguments are for the CUDA runtime. By default it uses the current device, creates memory pools as needed, and
    captures on a stream used only for captures, chosen by the stream that is current at the first capture (`capture_stream`).
    """
    if config.runtime == "emulator":
        return Emulator()
    if config.runtime == "cuda" or has_cuda():
        return CudaRuntime(device, pool, stream, capture_error_mode)
    return None
