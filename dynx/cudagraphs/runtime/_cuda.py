"""CUDA graphs of torch: one stream and one memory pool for all captures of a runtime.

Torch: `torch.cuda.CUDAGraph`; the guide on CUDA graphs of the CUDA documentation says what may be captured.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch

from dynx._torch.cuda_graphs import is_plain, recover, replay_of
from dynx.cudagraphs.runtime import _driver
from dynx.cudagraphs.runtime._copies import copy_of, run_with_copies
from dynx.cudagraphs.runtime._driver import Setter
from dynx.cudagraphs.runtime._interface import Copied, Copy, no_results
from dynx.cudagraphs.runtime._patching import patching
from dynx.cudagraphs.runtime._pointers import NotPatchable
from dynx.errors import CaptureFailed


class Cuda:
    """Captures on the current CUDA device."""

    device_type = "cuda"

    def __init__(self, pool: Any = None, stream: Any = None, capture_error_mode: str = "thread_local") -> None:
        self._stream = stream or torch.cuda.Stream()
        self._given_pool = pool
        self._pool = self.new_pool()
        self._error_mode = capture_error_mode

    def warm_up(self, function: Callable[[], Any]) -> Any:
        caller = torch.cuda.current_stream()
        self._stream.wait_stream(caller)
        with torch.cuda.stream(self._stream):
            result = function()
        caller.wait_stream(self._stream)
        return result

    def copies_in_graph(self) -> bool:
        return _driver.is_available()

    def new_pool(self) -> Any:
        return self._given_pool or torch.cuda.graph_pool_handle()

    def capture(
        self, function: Callable[[], Any], copies: Sequence[Copy] = (), results: Copied = no_results, pool: Any = None
    ) -> CudaCaptured:
        pool = pool or self._pool
        graph = torch.cuda.CUDAGraph(keep_graph=True)
        torch.cuda.synchronize()
        torch.clear_autocast_cache()  # copies of parameters in it would be read by the graph, but not kept
        try:
            with torch.cuda.graph(graph, pool=pool, stream=self._stream, capture_error_mode=self._error_mode):
                outputs, handed = run_with_copies(function, copies, results)
            graph.instantiate()
            sources = _driver.addresses_of(graph, copies, "from") if copies else nothing
            targets = _driver.addresses_of(graph, handed, "to") if handed else nothing
        except BaseException as error:
            recover(self._stream.device_index, pool)
            if isinstance(error, RuntimeError):
                raise CaptureFailed(f"CUDA did not capture it: {_first_cause(error)}") from error
            raise
        finally:
            torch.clear_autocast_cache()
        return CudaCaptured(graph, outputs, sources, targets)

    def capture_reading(
        self, function: Callable[[Sequence[torch.Tensor]], Any], inputs: Sequence[torch.Tensor], results: Copied, pool: Any
    ) -> CudaCaptured:
        if not _driver.is_available():
            raise NotPatchable("cuda-bindings is not there\n  pip install 'dynx[cuda]'")
        sets = [[copy_of(each) for each in inputs] for _ in range(2)]
        first = self.capture(lambda: function(sets[0]), results=results, pool=pool)
        spare = self.new_pool()
        others = [self.capture(partial(function, given), results=results, pool=spare) for given in (sets[1], sets[0])]
        try:
            first.set_sources = patching(first, others, sets, results)
        except BaseException:
            first.close()
            raise
        finally:
            for each in others:
                each.close()
        return first


def nothing(tensors: Sequence[torch.Tensor]) -> None:
    """Set no address."""


def _first_cause(error: BaseException) -> str:
    """Give the first line of what went wrong first; what CUDA says at the end of a capture follows from that."""
    while error.__context__ is not None:
        error = error.__context__
    return str(error).partition("\n")[0]


class CudaCaptured:
    """A captured CUDA graph."""

    def __init__(self, graph: torch.cuda.CUDAGraph, outputs: Any, sources: Setter, targets: Setter) -> None:
        self.graph, self.outputs = graph, outputs
        self.set_sources, self.set_targets = sources, targets
        self.replay: Callable[[], None] = self._replay_first

    def _replay_first(self) -> None:
        """Replay, and see whether torch has anything to do besides: with random numbers it moves the generator on."""
        device = torch.cuda.current_device()
        generator = torch.cuda.default_generators[device]
        before, replay = generator.get_offset(), replay_of(self.graph)
        replay()
        is_bare = generator.get_offset() == before and is_plain(self.graph) and torch.cuda.device_count() == 1
        self.replay = _driver.launching(self.graph, device) if is_bare and _driver.is_available() else replay

    def close(self) -> None:
        self.graph.reset()
        self.outputs, self.replay = None, _closed


def _closed() -> None:
    raise CaptureFailed("a graph was replayed after it was closed")
