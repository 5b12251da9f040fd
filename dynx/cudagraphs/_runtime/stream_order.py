"""The order of replays on several streams.

Graphs of one function share memory: inputs are copied to the same addresses, intermediate tensors and workspaces overlap. If
calls are made on several streams, each call has to wait for the work of the previous call, and memory must not be reused while
a stream uses it, even if the function is deleted.

All graphs of a device that draw random numbers read seed and offset from the same memory. Torch writes to it before each
replay, on the stream of the replay, and at the beginning of each capture, on the stream that captures. So these replays wait
for each other too, and for captures.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from threading import RLock
from typing import Any

import torch

from dynx._torch.ops.cuda_graphs import current_stream_of
from dynx.cudagraphs._runtime.interface import Run


class StreamOrder:
    """The order of replays of graphs that share memory: each stream waits for the stream that replayed last.

    Attributes:
        last: Raw handle of the stream that was used last; None if there is no stream to wait for.
        lock: Held until a replay is launched, so that the streams of other threads wait for the replay.
    """

    def __init__(self, device: int) -> None:
        self._device, self._current = device, current_stream_of(device)
        self.last: int | None = None
        self.lock = RLock()

    def follow(self, stream: int) -> None:
        """Make the stream with this handle wait for all work so far on the stream `last`; then store the handle as `last`."""
        if self.last is not None and self.last != stream:
            event = torch.cuda.Event()
            event.record(self._stream(self.last))
            self._stream(stream).wait_event(event)
        self.last = stream  # set now for `synchronize` in other threads; this stream waits for the earlier ones

    def follow_capture(self, stream: int) -> None:
        """Make the next replay, on any stream, wait for a stream on which a capture has ended."""
        with self.lock:
            self.follow(stream)

    def synchronize(self) -> bool:
        """Wait until all replays have ended; return False if that would invalidate a capture of this thread."""
        if torch.cuda.is_current_stream_capturing():
            return False
        if (last := self.last) is not None:
            self._stream(last).synchronize()
        return True

    def in_order(self, run: Run, tensors: Sequence[torch.Tensor]) -> Run:
        """Return a function that makes the current stream wait for earlier replays, then calls `run`, which replays a graph.

        `run` uses `tensors`. When they are freed, their memory is not reused until the streams that used them have finished.
        """
        get_current, lock, known = self._current, self.lock, {self._current()}
        latest: int | None = None

        def begin(stream: int) -> None:
            nonlocal latest
            latest = stream
            if stream not in known:
                known.add(stream)
                for tensor in tensors:
                    tensor.record_stream(self._stream(stream))
            self.follow(stream)

        def run_in_order(args: Sequence[Any]) -> list[Any]:
            with lock:
                stream = get_current()
                if stream != latest or stream != self.last:
                    begin(stream)
                return run(args)

        return run_in_order

    def _stream(self, handle: int) -> torch.cuda.Stream:
        device = torch.device("cuda", self._device)
        return torch.cuda.ExternalStream(handle, device=device) if handle else torch.cuda.default_stream(device)


@cache
def order_of_draws(device: int) -> StreamOrder:
    """Return the StreamOrder of captures and replays that use the random numbers of a device; captures hold its lock."""
    return StreamOrder(device)
