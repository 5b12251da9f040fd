"""What a runtime offers, and which one a configuration asks for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch

from dynx.cudagraphs._config import Config
from dynx.errors import UsageError

Copy = tuple[torch.Tensor, torch.Tensor]  # to the first from the second


Function = Callable[[Sequence[torch.Tensor]], Any]  # of copies of inputs

Copied = Callable[[Any], Sequence[torch.Tensor]]  # of what a function gives: what is copied to where the caller says


def no_results(outputs: Any) -> Sequence[torch.Tensor]:
    return ()


class Captured(Protocol):
    """A captured graph: replaying it does what the function did, on the same memory."""

    outputs: Any  # of the function; written by each replay

    def replay(self) -> None:
        """Do it."""

    def set_sources(self, tensors: Sequence[torch.Tensor]) -> None:
        """Have the copies that were captured read from these tensors, alike in layout, from the next replay on."""

    def set_targets(self, tensors: Sequence[torch.Tensor]) -> None:
        """Have the results that were asked for copied to these tensors, alike in layout, by the next replay."""

    def release(self, tensors: Sequence[torch.Tensor]) -> None:
        """Let graphs that are captured later in the same pool have the memory of tensors, where the capture has made them.

        Nobody may read them after a replay.
        """

    def raw(self) -> int:
        """Give the driver's handle of the graph (a cudaGraph_t), which may be changed."""

    def instantiate(self) -> None:
        """Have the next replays do what the graph does now, after changes to it."""

    def close(self) -> None:
        """Give back what it holds."""


class Runtime(Protocol):
    """Captures functions whose tensors lie on one kind of device."""

    device: torch.device

    def warm_up(self, function: Callable[[], Any]) -> Any:
        """Run a function as the capture will run it, so that what it sets up once is set up."""

    def is_warm(self) -> bool:
        """Tell whether something was warmed up in this thread: some of what is set up belongs to a thread."""

    def is_capturing(self) -> bool:
        """Tell whether what this thread does now is captured."""

    def copies_in_graph(self) -> bool:
        """Tell whether a graph can begin with copies whose sources are set before a replay."""

    def new_pool(self) -> Any:
        """Make a pool of memory of its own."""

    def capture(
        self, function: Function, sources: Sequence[torch.Tensor] = (), results: Copied = no_results, pool: Any = None
    ) -> Captured:
        """Capture copies of inputs, a function of them, and copies of some of its results, none of which is executed.

        Graphs of one pool share the memory of what they need in between: a replay may overwrite results of graphs that were
        captured later. Without a pool that of the runtime is taken.

        Raises what the function raises, and CaptureFailed for what cannot be captured.
        """

    def capture_reading(
        self, function: Callable[[Sequence[torch.Tensor]], Any], inputs: Sequence[torch.Tensor], results: Copied, pool: Any
    ) -> Captured:
        """Capture a function that reads inputs where they lie; `set_sources` has it read others, alike in layout.

        The function is captured several times, and replayed to see that it reads what it is told: it must change nothing.
        Raises NotPatchable where it cannot be told what to read.
        """


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
        from dynx.cudagraphs.runtime._emulator import Emulator

        return Emulator()
    if config.runtime == "cuda" or has_cuda():
        from dynx.cudagraphs.runtime._cuda import Cuda

        return Cuda(**options)
    return None
