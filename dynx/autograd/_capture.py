"""`capture`: enable compiled autograd, and record its captures."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, overload

import torch

from dynx._torch.autograd.captures import Observation, RawCapture, enabled
from dynx.autograd._records import Captures
from dynx.errors import UsageError
from dynx.records.backward import BackwardCapture


class CaptureLog(Sequence[BackwardCapture]):
    """The captures of compiled autograd in a block: `log[0].reasons`, `.nodes`, `.hooks`, `.code`, `.order_errors`, `.calls`.

    It can be read while the block runs; `calls` then counts the calls so far.
    """

    def __init__(self) -> None:
        self._captures = Captures()
        self._graphs: list[Any] = []
        self._errors: list[str] = []

    def __len__(self) -> int:
        return len(self._captures)

    @overload
    def __getitem__(self, index: int) -> BackwardCapture: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[BackwardCapture, ...]: ...
    def __getitem__(self, index: int | slice) -> BackwardCapture | tuple[BackwardCapture, ...]:
        numbers = range(len(self))[index]
        if isinstance(numbers, range):
            return tuple(self._captures.record(number, self._graphs[number]) for number in numbers)
        return self._captures.record(numbers, self._graphs[numbers])

    @property
    def troubles(self) -> tuple[str, ...]:
        """Errors of dynx while it recorded a capture; the program is not affected."""
        return tuple(self._errors)

    def _add(self, raw: RawCapture) -> None:
        self._captures.add(raw)
        self._graphs.append(raw.graph)
        raw.graph = None  # torch's cache keeps `raw`

    def _error(self, what: str, error: BaseException) -> None:
        self._errors.append(f"{what}: {type(error).__name__}: {error}")


@contextmanager
def capture(
    backend: str | Callable[..., Any] | None = "eager",
    *,
    fullgraph: bool = False,
    dynamic: bool | None = True,
    lines: bool = True,
) -> Iterator[CaptureLog]:
    """Capture each backward pass of the block with compiled autograd, compile the graphs, and record them.

    Args:
        backend: a backend of `torch.compile` for the captured graphs; None runs them as they are.
        fullgraph: raise where Dynamo cannot trace a hook, instead of running it eagerly.
        dynamic: False captures again for each other size of a saved tensor, True marks all sizes as dynamic.
        lines: record the line of each forward operation, with the anomaly mode of autograd (without its check for NaN), which
            makes eager forward passes slower.

    Returns: a context manager; its value is a `CaptureLog`, a sequence of `BackwardCapture`.

    Raises: UsageError if `backend` is no name, function or None.

    Passes on other threads are not captured. Blocks can be nested: the inner one captures.

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

    log = CaptureLog()
    anomaly = torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()
    with Observation(log._add, lambda raw: None, log._error), enabled(compiled, dynamic=bool(dynamic), on_error=log._error):
        if lines and not anomaly[0]:
            torch.autograd.set_detect_anomaly(True, check_nan=False)
        try:
            yield log
        finally:
            if lines and not anomaly[0]:
                torch.autograd.set_detect_anomaly(*anomaly)
