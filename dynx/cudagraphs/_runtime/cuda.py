"""CUDA graphs of torch: one stream and one memory pool for all captures of a runtime.

Torch: `torch.cuda.CUDAGraph`; the guide on CUDA graphs of the CUDA documentation says what may be captured.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any
from weakref import ref

import torch

from dynx._torch.ops.cuda_graphs import Pool, is_plain, recover, replay_of
from dynx.cudagraphs._runtime import driver
from dynx.cudagraphs._runtime.capture_lock import alone, capturing, keep_while_captured
from dynx.cudagraphs._runtime.cpu_ops import NothingOnCpu
from dynx.cudagraphs._runtime.driver import Executable, Setter
from dynx.cudagraphs._runtime.interface import Copied, Function, no_results
from dynx.cudagraphs._runtime.memcpy import copy_of, run_with_copies
from dynx.cudagraphs._runtime.patching import patching
from dynx.cudagraphs._runtime.pointer_scan import NotPatchable
from dynx.errors import CaptureFailed


class Cuda:
    """Captures on a CUDA device: that which is the current one when it is made, if none is given."""

    def __init__(
        self,
        device: torch.device | None = None,
        pool: Any = None,
        stream: Any = None,
        capture_error_mode: str = "thread_local",
    ) -> None:
        self.device = device or torch.device("cuda", torch.cuda.current_device())
        self._given_stream = stream
        self._warm: set[int] = set()  # threads
        self._given_pool = pool
        self._shared_pool: Callable[[], Any] = _none  # kept by what is captured in it
        self._error_mode = capture_error_mode

    @property
    def _stream(self) -> torch.cuda.Stream:
        """Each thread captures on a stream of its own, since what others do on it would be captured too."""
        return self._given_stream or _stream_of(self.device)

    def warm_up(self, function: Callable[[], Any]) -> Any:
        caller, own = torch.cuda.current_stream(self.device), self._stream
        own.wait_stream(caller)
        with torch.cuda.stream(own):  # and its device
            result = function()
        caller.wait_stream(own)
        self._warm.add(threading.get_ident())
        return result

    def is_warm(self) -> bool:
        return threading.get_ident() in self._warm

    is_capturing = staticmethod(torch.cuda.is_current_stream_capturing)  # asked in each call

    def copies_in_graph(self) -> bool:
        return driver.is_available()

    def new_pool(self) -> Any:
        return self._given_pool or Pool(self.device.index)

    def capture(
        self, function: Function, sources: Sequence[torch.Tensor] = (), results: Copied = no_results, pool: Any = None
    ) -> CudaCaptured:
        with capturing(), torch.cuda.device(self.device):
            return self._capture(function, sources, results, pool or self._shared())

    def _capture(self, function: Function, inputs: Sequence[torch.Tensor], results: Copied, pool: Any) -> CudaCaptured:
        handle = pool.handle if isinstance(pool, Pool) else pool
        graph = torch.cuda.CUDAGraph(keep_graph=True)
        torch.cuda.synchronize()
        torch.clear_autocast_cache()  # copies of parameters in it would be read by the graph, but not kept
        chance = torch.get_rng_state()
        try:
            with self._on(graph, handle), NothingOnCpu():
                outputs, copies, handed = run_with_copies(function, inputs, results)
            graph.instantiate()
            executable = Executable(graph)
            sources = driver.addresses_of(executable, copies, "from") if copies else nothing
            targets = driver.addresses_of(executable, handed, "to") if handed else nothing
        except BaseException as error:
            recover(self.device.index, handle)
            torch.set_rng_state(chance)
            if isinstance(error, RuntimeError):
                raise CaptureFailed(f"CUDA did not capture it: {_first_cause(error)}") from error
            raise
        finally:
            torch.clear_autocast_cache()
        return CudaCaptured(executable, outputs, sources, targets, pool, self.device.index)

    def _on(self, graph: torch.cuda.CUDAGraph, handle: Any) -> AbstractContextManager[None]:
        return torch.cuda.graph(graph, pool=handle, stream=self._stream, capture_error_mode=self._error_mode)

    def _shared(self) -> Any:
        pool = self._shared_pool()
        if pool is None:
            pool = self.new_pool()
            self._shared_pool = ref(pool) if isinstance(pool, Pool) else lambda: pool
        return pool

    def capture_reading(
        self, function: Callable[[Sequence[torch.Tensor]], Any], inputs: Sequence[torch.Tensor], results: Copied, pool: Any
    ) -> CudaCaptured:
        if not driver.is_available():
            raise NotPatchable("cuda-bindings is not there\n  pip install 'dynx[cuda]'")
        sets = [[copy_of(each) for each in inputs] for _ in range(2)]
        first = self.capture(lambda _: function(sets[0]), results=results, pool=pool)
        spare, others = self.new_pool(), list[CudaCaptured]()

        def capture(given: Sequence[torch.Tensor]) -> CudaCaptured:
            others.append(self.capture(lambda _: function(given), results=results, pool=spare))
            return others[-1]

        try:
            with torch.cuda.device(self.device):
                first.set_sources = patching(first, capture(sets[1]), partial(capture, sets[0]), sets, inputs, results)
        except BaseException:
            first.close()
            raise
        finally:
            for each in others:
                each.close()
        return first


class _Streams(threading.local):
    def __init__(self) -> None:
        self.found: dict[torch.device, torch.cuda.Stream] = {}


_streams = _Streams()


def _stream_of(device: torch.device) -> torch.cuda.Stream:
    """Give the stream for captures of this thread: cuBLAS keeps memory for each stream that it was used on."""
    if device not in _streams.found:
        _streams.found[device] = torch.cuda.Stream(device)
    return _streams.found[device]


def _none() -> None:
    return None


def nothing(tensors: Sequence[torch.Tensor]) -> None:
    """Set no address."""


def _first_cause(error: BaseException) -> str:
    """Give the first line of what went wrong first; what CUDA says at the end of a capture follows from that."""
    while error.__context__ is not None:
        error = error.__context__
    return str(error).partition("\n")[0]


class CudaCaptured:
    """A captured CUDA graph."""

    def __init__(self, executable: Executable, outputs: Any, sources: Setter, targets: Setter, pool: Any, device: int) -> None:
        self.executable, self.graph = executable, executable.graph
        self.outputs, self._pool, self._device = outputs, pool, device
        keep_while_captured(self, self.graph)
        self.set_sources, self.set_targets = sources, targets
        self.replay: Callable[[], None] = self._replay_first

    def _replay_first(self) -> None:
        """Replay, and see whether torch has anything to do besides: with random numbers it moves the generator on."""
        generator = torch.cuda.default_generators[self._device]
        before, replay = generator.get_offset(), replay_of(self.graph)
        replay()
        is_bare = generator.get_offset() == before and is_plain(self.graph)
        self.replay = driver.launching(self.executable, self._device) if is_bare and driver.is_available() else replay

    def release(self, tensors: Sequence[torch.Tensor]) -> None:
        handle = self._pool.handle if isinstance(self._pool, Pool) else self._pool
        segments = [each for each in torch.cuda.memory_snapshot() if tuple(each["segment_pool_id"]) == tuple(handle)]
        for each in tensors:
            memory = each.untyped_storage()
            address = memory.data_ptr()
            if any(segment["address"] <= address < segment["address"] + segment["total_size"] for segment in segments):
                memory.resize_(0)

    def raw(self) -> int:
        return int(self.graph.raw_cuda_graph())

    def instantiate(self) -> None:
        torch.cuda.synchronize(self._device)
        with alone:
            self.executable.instantiate()

    def close(self) -> None:
        with alone:  # another thread's capture would break off
            self.graph.reset()
        self.outputs, self._pool, self.replay = None, None, _closed


def _closed() -> None:
    raise CaptureFailed("a graph was replayed after it was closed")
