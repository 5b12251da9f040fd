"""The runtime that captures CUDA graphs, on a stream of its own; by default, the graphs share a memory pool.

See `torch.cuda.CUDAGraph`; the CUDA programming guide says in its chapter on CUDA graphs what may be captured.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any
from weakref import ref

import torch

from dynx._torch.ops.cuda_graphs import capture_check, clear_error_of_solver, is_plain, recover, replay_of
from dynx._torch.ops.memory_pools import Pool, segments
from dynx.cudagraphs._runtime import driver
from dynx.cudagraphs._runtime.capture_lock import (
    capture_lock,
    delete_outside_of_captures,
    destroy_outside_of_captures,
    exclusive_capture,
)
from dynx.cudagraphs._runtime.capture_stream import CaptureStream, WorkspacesFreed, capture_stream
from dynx.cudagraphs._runtime.cpu_ops import RejectCpuOps
from dynx.cudagraphs._runtime.cuda_rng import Draws, DrawWatch, SeedlessGraph, offset_of, own_state, set_offset
from dynx.cudagraphs._runtime.driver import ExecutableGraph, SetAddresses
from dynx.cudagraphs._runtime.failures import NameFailures, failure_of
from dynx.cudagraphs._runtime.interface import Capturable, MemoryPool, Run, SelectClones, no_clones
from dynx.cudagraphs._runtime.memcpy import run_with_copies, spread_copies
from dynx.cudagraphs._runtime.patching.pointer_scan import MisleadingWord, NotPatchable, UnexplainedDifference
from dynx.cudagraphs._runtime.patching.verify import make_verified_setter
from dynx.cudagraphs._runtime.rng_errors import DRAWS_TWICE
from dynx.cudagraphs._runtime.stream_order import StreamOrder, order_of_draws
from dynx.errors import CaptureFailed


class CudaRuntime:
    """The runtime that captures functions as CUDA graphs on one device; `select_runtime` describes the arguments."""

    def __init__(
        self,
        device: torch.device | None = None,
        pool: MemoryPool = None,
        stream: torch.cuda.Stream | None = None,
        capture_error_mode: str = "thread_local",
    ) -> None:
        self.device = device or torch.device("cuda", torch.cuda.current_device())
        self._user_stream = stream
        self._stream: CaptureStream | None = None  # of all graphs, since they share memory; set by the first capture
        self._warmed_up: set[int] = set()  # identifiers of threads
        self._user_pool = pool
        self._shared_pool: Callable[[], MemoryPool] = lambda: None  # a weak reference: graphs captured in the pool own it
        self._capture_error_mode = capture_error_mode

    def warm_up(self, function: Callable[[], Any]) -> Any:
        result = function()  # on the caller's stream, which reads the result, and may free it
        self._warmed_up.add(threading.get_ident())
        return result

    def is_warmed_up(self) -> bool:
        return threading.get_ident() in self._warmed_up

    is_capturing = staticmethod(capture_check())  # without a wrapper: it is called in each call

    def can_set_memcpy_nodes(self) -> bool:
        return driver.is_available()

    def new_pool(self, what: str) -> MemoryPool:
        return self._user_pool or Pool(self.device.index, what)

    def capture(
        self,
        function: Capturable,
        sources: Sequence[torch.Tensor] = (),
        select_clones: SelectClones = no_clones,
        pool: MemoryPool = None,
        generators: Sequence[torch.Generator] = (),
        forward: CudaCapturedGraph | None = None,
    ) -> CudaCapturedGraph:
        with exclusive_capture(), torch.cuda.device(self.device), order_of_draws(self.device.index).lock:
            pool = pool or self._get_shared_pool()
            if forward is not None and forward.draws.after:
                with own_state(torch.cuda.default_generators[self.device.index]):
                    captured = self._capture(function, sources, select_clones, pool, generators, forward.draws.after)
                repeat = captured.draws.repeat(forward.draws)
                if repeat == {True}:
                    captured.draw_again(forward)
                if repeat <= {True}:
                    return captured
                captured.close()
                if len(repeat) > 1:
                    raise CaptureFailed(DRAWS_TWICE)
            return self._capture(function, sources, select_clones, pool, generators)

    def _capture(self, *how: Any) -> CudaCapturedGraph:
        """Call `_capture_once` with the arguments `how`; try again if another thread freed cuBLAS workspaces meanwhile."""
        for _ in range(_ATTEMPTS - 1):
            with suppress(WorkspacesFreed):
                return self._capture_once(*how)
        return self._capture_once(*how)

    def _capture_once(
        self,
        function: Capturable,
        inputs: Sequence[torch.Tensor],
        select_clones: SelectClones,
        pool: MemoryPool,
        generators: Sequence[torch.Generator],
        begin: int = 0,
    ) -> CudaCapturedGraph:
        handle = pool.handle if isinstance(pool, Pool) else pool
        if self._stream is None:
            self._stream = capture_stream(self.device.index)
        if self._user_stream is None:
            self._stream.make_workspaces()
        stream = self._user_stream or self._stream.stream
        torch.cuda.synchronize()
        torch.clear_autocast_cache()  # the graph would read cached casts of parameters without keeping them alive
        rng_state, caller = torch.get_rng_state(), torch.cuda.current_stream()
        default = torch.cuda.default_generators[self.device.index]
        graph = SeedlessGraph(keep_graph=True)
        graph.generators = [default, *generators]
        watch, failures = DrawWatch(graph.generators, begin), NameFailures(driver.invalidation_check(stream))
        for generator in generators:
            graph.register_generator_state(generator)
        try:
            with torch.cuda.graph(graph, pool=handle, stream=stream, capture_error_mode=self._capture_error_mode):
                if begin:
                    set_offset(default, begin)
                with watch, RejectCpuOps(), failures:
                    outputs, copies, clones = run_with_copies(function, inputs, select_clones)
                end = offset_of(default)
                if watch.offsets and not end:
                    set_offset(default, watch.offsets[0] + 4)  # else a replay would not set seed and offset: see `cuda_rng`
                elif end == begin and not watch.offsets and not watch.was_restored:
                    set_offset(default, end := 0)  # nothing was drawn
            if self._user_stream is None:
                self._stream.check_workspaces()
            graph.instantiate()
            executable = ExecutableGraph(graph)
            set_sources = driver.make_address_setter(executable, copies, driver.MEMCPY_SOURCE)
            set_targets = driver.make_address_setter(executable, clones, driver.MEMCPY_TARGET)
        except BaseException as error:
            torch.cuda.set_stream(caller)  # `torch.cuda.graph` does not if the capture cannot be ended
            delete_outside_of_captures(graph)  # the traceback of the error refers to it too
            recover(self.device.index, handle, self._stream.stream, generators)
            clear_error_of_solver(self.device)
            torch.set_rng_state(rng_state)
            if isinstance(error, RuntimeError):
                raise (failures.first.error() if failures.first else failure_of(error, "CUDA graph capture")) from error
            raise
        finally:
            torch.clear_autocast_cache()
            self._let_others_follow(stream, caller)
        draws = Draws([default.graphsafe_get_state(), *generators], watch, end)
        return CudaCapturedGraph(
            executable, outputs, set_sources, set_targets, pool, self._stream.order, draws, self.device.index
        )

    def _let_others_follow(self, stream: torch.cuda.Stream, caller: torch.cuda.Stream) -> None:
        """Make the caller's stream and later replays wait for the capturing stream, on which torch resets RNG states."""
        assert self._stream is not None
        for used in {stream, self._stream.stream}:  # `recover` uses the second
            caller.wait_stream(used)
            self._stream.order.follow_capture(used.cuda_stream)
            order_of_draws(self.device.index).follow_capture(used.cuda_stream)

    def _get_shared_pool(self) -> MemoryPool:
        pool = self._shared_pool()
        if pool is None:
            pool = self.new_pool("graphs without gradients of one function")
            self._shared_pool = ref(pool) if isinstance(pool, Pool) else lambda: pool
        return pool

    def capture_patched(
        self, function: Capturable, inputs: Sequence[torch.Tensor], select_clones: SelectClones, pool: MemoryPool
    ) -> CudaCapturedGraph:
        if not driver.is_available():
            raise NotPatchable("cuda-bindings is not installed\n  pip install 'dynx[cuda]'")
        kept: list[list[torch.Tensor]] = []  # a misleading word may be an old address of theirs, which no other attempt reuses
        for attempt in range(1, _ATTEMPTS + 1):
            input_sets = [spread_copies(inputs, seed) for seed in range(2)]
            try:
                return self._capture_patched(function, inputs, input_sets, select_clones, pool)
            except (MisleadingWord, UnexplainedDifference) as error:
                if attempt == _ATTEMPTS:
                    raise
                kept += input_sets if isinstance(error, MisleadingWord) else ()
        raise AssertionError

    def _capture_patched(
        self,
        function: Capturable,
        inputs: Sequence[torch.Tensor],
        input_sets: Sequence[Sequence[torch.Tensor]],
        select_clones: SelectClones,
        pool: MemoryPool,
    ) -> CudaCapturedGraph:
        first = self.capture(lambda _: function(input_sets[0]), select_clones=select_clones, pool=pool)
        spare_pool, others = self.new_pool("captures to find pointers"), list[CudaCapturedGraph]()

        def capture(tensors: Sequence[torch.Tensor]) -> CudaCapturedGraph:
            others.append(self.capture(lambda _: function(tensors), select_clones=select_clones, pool=spare_pool))
            return others[-1]

        try:
            with torch.cuda.device(self.device):
                first.set_sources = make_verified_setter(first, capture, input_sets, inputs, select_clones)
        except BaseException:
            first.close()
            raise
        finally:
            for graph in others:
                graph.close()
        return first


_ATTEMPTS = 3  # to capture: in a later one, padding in node parameters and the work of other threads may differ


class CudaCapturedGraph:
    """A captured and instantiated CUDA graph; `order` is the StreamOrder of all graphs that share its memory or workspaces."""

    def __init__(
        self,
        executable: ExecutableGraph,
        outputs: Any,
        set_sources: SetAddresses,
        set_targets: SetAddresses,
        pool: MemoryPool,
        order: StreamOrder,
        draws: Draws,
        device: int,
    ) -> None:
        self.executable, self.graph = executable, executable.graph
        self.outputs, self._pool, self._device = outputs, pool, device
        self._order, self.draws = order, draws
        destroy_outside_of_captures(self, self.graph, order.synchronize)
        self.set_sources, self.set_targets = set_sources, set_targets
        self.replay: Callable[[], None] = self._replay_first if draws.are_bare else draws.advancing(replay_of(self.graph))

    def _replay_first(self) -> None:
        """Replay the graph through torch; let later replays call the driver, which is faster.

        Used for graphs that draw no random numbers. If cuda-bindings is not installed, or `CUDAGraph.replay` runs hooks in this
        version of torch, later replays use torch too.
        """
        replay = replay_of(self.graph)
        replay()
        is_bare = is_plain(self.graph) and driver.is_available()
        self.replay = driver.make_launcher(self.executable, self._device) if is_bare else replay

    def draw_again(self, forward: CudaCapturedGraph) -> None:
        """Make replays of this graph draw the same random numbers as the last replay of `forward`."""
        self.replay = self.draws.drawing_again(replay_of(self.graph), forward.draws)
        forward.replay = forward.draws.noting_start(forward.replay)

    def in_order(self, run: Run, tensors: Sequence[torch.Tensor]) -> Run:
        run = self._order.in_order(run, tensors)
        return run if self.draws.are_bare else order_of_draws(self._device).in_order(run, ())  # locked first, as in captures

    def release(self, tensors: Sequence[torch.Tensor]) -> None:
        own = self.memory()
        for tensor in tensors:
            storage = tensor.untyped_storage()
            if any(start <= storage.data_ptr() < end for start, end in own):
                storage.resize_(0)

    def memory(self) -> list[tuple[int, int]]:
        """Return start and end address of the segments of the memory pool."""
        handle = self._pool.handle if isinstance(self._pool, Pool) else self._pool
        own = (each for each in segments() if tuple(each["segment_pool_id"]) == tuple(handle))
        return [(segment["address"], segment["address"] + segment["total_size"]) for segment in own]

    def raw_cuda_graph(self) -> int:
        return int(self.graph.raw_cuda_graph())

    def instantiate(self) -> None:
        torch.cuda.synchronize(self._device)
        with capture_lock():
            self.executable.instantiate()

    def close(self) -> None:
        # destroying a graph would invalidate a capture of another thread; a replay of another thread comes before or after both
        with capture_lock(), self._order.lock:
            self._order.synchronize()  # a replay may be in progress on another stream
            self.graph.reset()
            self.replay = _raise_closed
        self.outputs, self._pool = None, None


def _raise_closed() -> None:
    raise CaptureFailed("a captured graph was replayed after close() had released it\n  call the function again")
