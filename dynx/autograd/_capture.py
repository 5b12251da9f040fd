"""`capture`: enable compiled autograd, and record its captures."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import Any, overload

import torch

from dynx._torch.autograd import capture_cache as cache
from dynx._torch.autograd.captured_graph import commented_code
from dynx._torch.autograd.captures import Observation, RawCapture
from dynx._torch.autograd.forward_modules import noting_modules
from dynx.autograd._records import Captures
from dynx.errors import UsageError
from dynx.records.backward import BackwardCapture, BackwardNode, CaptureReport, CaptureVerdict


class CaptureLog(Sequence[BackwardCapture]):
    """The captures of compiled autograd in a block: `log[0].reasons`, `.nodes`, `.hooks`, `.code`, `.order_errors`, `.calls`.

    It can be read while the block runs; `calls` then counts the calls so far.
    """

    def __init__(self) -> None:
        self._captures = Captures()
        self._graphs: list[Any] = []
        self._codes: dict[int, str] = {}
        self._errors: list[str] = []

    def __len__(self) -> int:
        return len(self._captures)

    @overload
    def __getitem__(self, index: int) -> BackwardCapture: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[BackwardCapture, ...]: ...
    def __getitem__(self, index: int | slice) -> BackwardCapture | tuple[BackwardCapture, ...]:
        numbers = range(len(self))[index]
        return tuple(map(self._record, numbers)) if isinstance(numbers, range) else self._record(numbers)

    def _record(self, number: int) -> BackwardCapture:
        record, graph = self._captures.record(number), self._graphs[number]
        if number not in self._codes:
            self._codes[number] = commented_code(graph, lambda node: _with_line(record.nodes[node]))
        return replace(record, graph=graph, code=self._codes[number])

    def __repr__(self) -> str:
        return f"<CaptureLog: {len(self)} captures, {sum(capture.calls for capture in self)} calls>"

    def __rich__(self) -> Any:
        return CaptureReport(self[:]).__rich__()

    def _repr_html_(self) -> str:
        return CaptureReport(self[:])._repr_html_()

    def would_capture(self, *tensors: torch.Tensor) -> CaptureVerdict:
        """Predict whether `backward()` of these tensors would be captured, without running it.

        Raises: UsageError if the block has ended and other captures were made since, if a tensor has no autograd graph, or if
            an earlier backward pass has freed it.
        """
        if self not in _blocks and not any(log is self and state == cache.state() for _, state, log in _ended):
            raise UsageError("the captures of this log are no longer in torch's cache\n  ask within the block")
        if not all(isinstance(tensor, torch.Tensor) and tensor.requires_grad for tensor in tensors) or not tensors:
            raise UsageError("what has no autograd graph has no backward pass\n  pass the loss")
        return self._captures.predicted(tensors)

    @property
    def troubles(self) -> tuple[str, ...]:
        """Errors of dynx while it recorded a capture; the program is not affected."""
        return tuple(self._errors)

    def _add(self, raw: RawCapture) -> None:
        if cache.is_checking():  # `dynx.check` in the block
            return
        self._captures.add(raw)
        self._graphs.append(raw.graph)
        raw.graph = None  # torch's cache keeps `raw`

    def _error(self, what: str, error: BaseException) -> None:
        self._errors.append(f"{what}: {type(error).__name__}: {error}")


def _with_line(node: BackwardNode) -> str:
    return f"{node} at {node.location}" if node.location is not None else str(node)


@contextmanager
def capture(
    backend: str | Callable[..., Any] | None = "eager",
    *,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    lines: bool = True,
) -> Iterator[CaptureLog]:
    """Capture each backward pass of the block with compiled autograd, compile the graphs, and record them.

    Args:
        backend: a backend of `torch.compile` for the captured graphs; None runs them as they are.
        fullgraph: raise where Dynamo cannot trace a hook, instead of running it eagerly.
        dynamic: None captures with fixed sizes, and once more with those dynamic that changed. True makes all sizes dynamic at
            once, which can take minutes to compile. False compiles the graph again for each other size.
        lines: record the line and module of each forward operation, with the anomaly mode of autograd (without its check for
            NaN), which makes eager forward passes slower.

    Returns: a context manager; its value is a `CaptureLog`, a sequence of `BackwardCapture`.

    Raises: UsageError if `backend` is no name, function or None, or if a captured backward pass is running.

    Passes of other threads are captured too; torch raises where two threads capture at once. Blocks can be nested: the inner
    one captures, and the outer log has its captures too. A block with the same arguments as the block before it continues its
    log, as it runs the graphs that were captured there: one can enter a block in each step. torch has one cache for the
    process, which does not compare compilers: a block with other arguments forgets its captures, and so does the end of a block
    within which, or before which, others use compiled autograd.

    >>> import torch, dynx
    >>> model = torch.nn.Linear(4, 4)
    >>> with dynx.autograd.capture() as log:
    ...     for exponent in (2, 3):
    ...         model.zero_grad()
    ...         model(torch.ones(2, 4)).pow(exponent).sum().backward()
    >>> reason = log[1].reasons[0]
    >>> print(reason.node, reason.subject, reason.before, reason.after)
    PowBackward0 (NodeCall 2) exponent 2 3
    """
    if backend is not None and not isinstance(backend, str) and not callable(backend):
        raise UsageError(f'backend is {backend!r}\n  pass the name of a backend, such as "aot_eager", a function, or None')

    def compiled(graph: Any) -> Any:
        return graph if backend is None else torch.compile(graph, backend=backend, fullgraph=fullgraph, dynamic=dynamic)

    with (
        _own_cache((backend, fullgraph, dynamic)) as log,
        Observation(log._add, lambda raw: None, log._error),
        cache.enabled(compiled, dynamic=bool(dynamic), on_error=log._error),
        _lines() if lines else nullcontext(),
    ):
        yield log


@contextmanager
def _lines() -> Iterator[None]:
    """Let autograd keep the stack and the module of each node."""
    anomaly = torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()
    with noting_modules():
        if not anomaly[0]:
            torch.autograd.set_detect_anomaly(True, check_nan=False)
        try:
            yield
        finally:
            now = torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()
            if not anomaly[0] and now == (True, False):  # else the program has set it meanwhile
                torch.autograd.set_detect_anomaly(*anomaly)


_blocks: list[CaptureLog] = []  # that run now
_ended: list[tuple[object, object, CaptureLog]] = []  # the last block whose captures are in the cache, if no one else's are


@contextmanager
def _own_cache(settings: object) -> Iterator[CaptureLog]:
    """Yield the log for a block; it runs no graph of others, which other settings compiled, and they run none of its graphs."""
    if cache.is_running():
        raise UsageError("a captured backward pass is running\n  begin the block before backward()")
    is_shared = bool(_blocks) or cache.is_enabled()
    ended = _ended.pop() if _ended else None
    if ended is not None and not is_shared and ended[:2] == (settings, cache.state()):
        log = ended[2]
    else:
        log = CaptureLog()
        is_shared = is_shared or not cache.is_empty()
        cache.clear()
    _blocks.append(log)
    try:
        yield log
    finally:
        _blocks.remove(log)
        if is_shared:
            cache.clear()
        else:
            _ended[:] = [(settings, cache.state(), log)]
