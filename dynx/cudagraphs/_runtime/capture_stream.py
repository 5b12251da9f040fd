"""CUDA streams to capture on, with cuBLAS workspaces that nothing else frees or writes to.

For each thread and stream, cuBLAS has a workspace in memory of torch's allocator; captured matrix products use its address.
Two things may go wrong with a workspace that was created before the capture. Torch may free the workspaces of all streams
(`torch._C._cuda_clearCublasWorkspaces`, which torch's own CUDA graph trees call), so that their memory is reused. And graphs
that were captured on one stream use the same workspace, even if they are replayed on two streams at once.

So captures use streams of their own, none of the 32 that `torch.cuda.Stream()` returns in turn: one capture stream for each
stream on which calls are made, since eager code has one workspace for each stream too. The workspaces of capture streams
are allocated from a memory pool that lives as long as the process: freed or not, their memory is not reused. If another thread
frees them during a capture, captured products allocate new workspaces from the pool of their graph, which later captures would
use too, so this capture fails. Replays of graphs that were captured on the same stream wait for each other (`StreamOrder`).
"""

from __future__ import annotations

import contextlib
import ctypes
from typing import Any

import torch

from dynx._torch.ops.memory_pools import Pool, clear_workspaces
from dynx.cudagraphs._runtime.stream_order import StreamOrder
from dynx.errors import CaptureFailed

_NON_BLOCKING = 1  # CU_STREAM_NON_BLOCKING: work on the legacy default stream does not wait for it


class WorkspacesFreed(CaptureFailed):
    """Raised if another thread freed the cuBLAS workspaces during a capture."""


class CaptureStream:
    """A CUDA stream used only for captures, its cuBLAS workspaces, and the `order` in which its graphs are replayed."""

    def __init__(self, device: int) -> None:
        self._device = device
        self.stream, self._workspaces, self.order = _new_stream(device), Pool(device, "cuBLAS workspaces"), StreamOrder(device)
        self._bytes_used = 0

    def make_workspaces(self) -> None:
        """Allocate the cuBLAS workspaces of this thread if there are none; called before each capture, not during one."""
        with self.order.lock:
            self.order.follow(self.stream.cuda_stream)  # replays in progress may use the workspaces
            self._multiply()
            self.stream.synchronize()
            self.order.last = None  # a replay that waited for this stream while it captures would become part of the capture
            self._bytes_used = self._workspaces.bytes_used()

    def check_workspaces(self) -> None:
        """Raise WorkspacesFreed if workspaces of `make_workspaces` were freed during the capture that has ended."""
        if self._bytes_used and self._workspaces.bytes_used() < self._bytes_used:
            clear_workspaces()  # workspaces that the capture allocated are in memory that is freed with its graph
            raise WorkspacesFreed("torch._C._cuda_clearCublasWorkspaces() ran during a capture\n  call it between captures")

    def _multiply(self) -> None:
        with (
            self._workspaces.allocations(),
            torch.cuda.stream(self.stream),
            torch.no_grad(),
            torch.autocast("cuda", enabled=False),
            contextlib.suppress(RuntimeError),  # with deterministic algorithms and no CUBLAS_WORKSPACE_CONFIG products raise
        ):
            matrix = torch.zeros(16, 16, device=torch.device("cuda", self._device))
            torch.mm(matrix, matrix)
            torch.addmm(matrix[0], matrix, matrix)  # by cublasLt, which may have a workspace of its own


_capture_streams: dict[tuple[int, int], CaptureStream] = {}  # by device and raw handle of the calling stream; never freed


def capture_stream(device: int) -> CaptureStream:
    """Return the CaptureStream for calls that are made on the current stream of a device."""
    key = device, torch.cuda.current_stream(device).cuda_stream
    if key not in _capture_streams:
        _capture_streams[key] = CaptureStream(device)
    return _capture_streams[key]


def _new_stream(device: int) -> torch.cuda.Stream:
    with torch.cuda.device(device):
        torch.cuda.synchronize()  # creates the CUDA context if there is none
        handle = ctypes.c_void_p()
        if error := ctypes.PyDLL("libcuda.so.1").cuStreamCreate(ctypes.byref(handle), _NON_BLOCKING):
            raise CaptureFailed(f"cuStreamCreate failed with CUDA error {error}")
        stream: Any = torch.cuda.ExternalStream(handle.value, device=torch.device("cuda", device))
    return stream  # never destroyed, since torch finds the workspaces by its handle
