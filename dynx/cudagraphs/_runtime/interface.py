"""The protocol of a runtime: capture a function as a graph, and replay the graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch

Copy = tuple[torch.Tensor, torch.Tensor]  # target and source
Capturable = Callable[[Sequence[torch.Tensor]], Any]  # called with the inputs in the memory that the graph reads
SelectClones = Callable[[Any], Sequence[torch.Tensor]]  # selects the outputs of a function that the graph copies to targets
Run = Callable[[Sequence[Any]], list[Any]]  # replays a graph for the inputs of a call, and returns the results
MemoryPool = Any  # opaque: a `Pool`, a handle of `torch.cuda.graph_pool_handle`, or a list of emulated graphs


def no_clones(outputs: Any) -> Sequence[torch.Tensor]:
    """Return no outputs. Passed as `select_clones` to capture a graph that clones none of its outputs."""
    return ()


class CapturedGraph(Protocol):
    """A captured graph: a replay runs the captured operations on the same memory."""

    outputs: Any  # of the function; each replay overwrites them

    def replay(self) -> None:
        """Launch the graph on the current stream."""

    def set_sources(self, tensors: Sequence[torch.Tensor]) -> None:
        """Set the tensors that the graph reads as inputs in the next replay.

        In a graph from `Runtime.capture`, the captured copies of inputs read from these tensors. In a graph from
        `Runtime.capture_patched`, the pointers to inputs in node parameters are set to the addresses of these tensors.

        Args:
            tensors: One tensor for each input, of the sizes, strides and dtype of the capture.
        """

    def set_targets(self, tensors: Sequence[torch.Tensor]) -> None:
        """Set the tensors to which the graph copies, in the next replay, the outputs that `select_clones` selected.

        Args:
            tensors: One tensor for each selected output, of the same sizes, strides and dtype.
        """

    def in_order(self, run: Run, tensors: Sequence[torch.Tensor]) -> Run:
        """Return a function that makes the current stream wait for earlier replays on other streams, then calls `run`.

        Args:
            run: Copies inputs, replays the graph and returns the results.
            tensors: Tensors that `run` uses whose memory is not in the graph's pool.
        """

    def release(self, tensors: Sequence[torch.Tensor]) -> None:
        """Let graphs that are captured later in the same memory pool reuse the memory of the outputs `tensors`.

        The caller must not read these outputs afterwards, only clones of them. Outputs outside of the pool are not changed.
        """

    def raw_cuda_graph(self) -> int:
        """Return the graph as a handle of the CUDA driver (a cudaGraph_t), with which the user may modify it."""

    def instantiate(self) -> None:
        """Instantiate the graph again, so that the next replays include changes to the raw graph."""

    def close(self) -> None:
        """Destroy the graph and release its outputs and its memory pool."""


class Runtime(Protocol):
    """A runtime captures functions as graphs on one device and replays them: with CUDA graphs, or with the emulator."""

    device: torch.device

    def warm_up(self, function: Callable[[], Any]) -> Any:
        """Run a function eagerly on the current stream, so that lazy initialization happens before a capture.

        Returns:
            The result of the function.
        """

    def is_warmed_up(self) -> bool:
        """Return whether this thread has called `warm_up`, since some lazily initialized state belongs to a thread."""

    def is_capturing(self) -> bool:
        """Return whether the operations of this thread are being captured."""

    def can_set_memcpy_nodes(self) -> bool:
        """Return whether sources and targets of memcpy nodes in a graph can be set before a replay."""

    def new_pool(self, what: str) -> MemoryPool:
        """Return a memory pool for captured graphs: the pool that the user passed, or a new one, named `what` in reports."""

    def capture(
        self,
        function: Capturable,
        sources: Sequence[torch.Tensor] = (),
        select_clones: SelectClones = no_clones,
        pool: MemoryPool = None,
        generators: Sequence[torch.Generator] = (),
        forward: Any = None,
    ) -> CapturedGraph:
        """Capture, in one graph, copies of inputs, a function that takes these copies, and copies of selected outputs.

        The capture itself changes no tensor. Graphs of one pool share the memory of intermediate tensors: a replay may
        overwrite the outputs of graphs that were captured later.

        Args:
            function: Called with the copies of the inputs; called again if the capture has to be repeated.
            sources: The inputs that memcpy nodes of the graph copy; `set_sources` replaces them before each replay.
            select_clones: Returns the outputs that memcpy nodes copy to the tensors of `set_targets`.
            pool: Memory pool of the graph; None for the pool that the runtime's graphs share.
            generators: Random number generators that the function draws from besides the default one. Each replay advances
                their states.
            forward: The captured forward pass, if `function` is its backward pass: in each replay, activation checkpoints draw
                the random numbers of the last replay of `forward` again.

        Raises:
            CaptureFailed: The function cannot be captured, or raises RuntimeError. Its other exceptions propagate.
        """

    def capture_patched(
        self, function: Capturable, inputs: Sequence[torch.Tensor], select_clones: SelectClones, pool: MemoryPool
    ) -> CapturedGraph:
        """Capture a function that reads its inputs without copies: `set_sources` patches the pointers to them.

        The function is captured several times and replayed to verify the patched pointers, so it must not mutate anything.

        Args:
            function: Called with tensors like `inputs` in each capture.
            inputs: Example inputs; the captures use copies of them, not their memory.
            select_clones: Returns the outputs that memcpy nodes copy to the tensors of `set_targets`.
            pool: Memory pool of the graph; None for the pool that the runtime's graphs share.

        Raises:
            NotPatchable: The input pointers cannot be found or verified.
            CaptureFailed: The function cannot be captured.
        """
