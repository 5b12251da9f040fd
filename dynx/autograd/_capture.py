"""`capture`: enable compiled autograd, and record its captures."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, overload

import torch

from dynx._reading.parameters import names_of_parameters
from dynx._reading.user_location import call_site, location_of, named, user_location
from dynx._torch.autograd import captured_graph as fx
from dynx._torch.autograd.captures import Observation, RawCapture, enabled
from dynx._torch.autograd.nodes import RawHook, RawNode
from dynx._torch.tracing.stack import RawFrame
from dynx.autograd._differences import Difference, HooksOf, differences
from dynx.autograd._order import check_order
from dynx.errors import UsageError
from dynx.records.backward import BackwardCapture, BackwardHook, BackwardNode, HookKind, RecaptureReason
from dynx.records.location import Location

ROOT = RawNode("GraphRoot", {})


@dataclass
class _Captured:
    raw: RawCapture
    location: Location | None
    parameters: dict[int, str]
    earlier: int  # captures of the log before this one


class CaptureLog(Sequence[BackwardCapture]):
    """The captures of compiled autograd in a block: `log[0].reasons`, `.nodes`, `.hooks`, `.code`, `.order_errors`, `.calls`.

    It can be read while the block runs; `calls` then counts the calls so far.
    """

    def __init__(self) -> None:
        self._captured: list[_Captured] = []
        self._errors: list[str] = []

    def __len__(self) -> int:
        return len(self._captured)

    @overload
    def __getitem__(self, index: int) -> BackwardCapture: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[BackwardCapture, ...]: ...
    def __getitem__(self, index: int | slice) -> BackwardCapture | tuple[BackwardCapture, ...]:
        if isinstance(index, slice):
            return tuple(self._record(each) for each in self._captured[index])
        return self._record(self._captured[index])

    @property
    def troubles(self) -> tuple[str, ...]:
        """Errors of dynx while it recorded a capture; the program is not affected."""
        return tuple(self._errors)

    def _add(self, raw: RawCapture) -> None:
        leaves = {node.parameter for node in raw.nodes if node.parameter is not None}
        self._captured.append(_Captured(raw, call_site(), names_of_parameters(leaves), len(self._captured)))

    def _error(self, point: str, error: BaseException) -> None:
        self._errors.append(f"{point}: {type(error).__name__}: {error}")

    def _record(self, captured: _Captured) -> BackwardCapture:
        raw = captured.raw
        hooks = _hooks_of_graph(raw)
        nodes = [_node(0, ROOT, captured, hooks, raw)]
        nodes += [_node(number, node, captured, hooks, raw) for number, node in enumerate(raw.nodes, 1)]
        earlier = [(each.raw, _hooks_of_graph(each.raw)) for each in self._captured[: captured.earlier]]
        found = differences(raw, hooks, earlier)
        graph = list(raw.graph.graph.nodes)
        return BackwardCapture(
            raw.id,
            captured.location,
            raw.seconds,
            tuple(self._reason(each, nodes, raw) for each in found) or (_unknown(raw),),
            tuple(nodes),
            raw.inputs,
            len(raw.sizes),
            sum(node.op == "call_function" and fx.kind_of(node) == "size" for node in graph),
            raw.calls,
            check_order(raw.graph),
            _moved(raw.before_reordering, [node.name for node in graph]),
            raw.graph,
        )

    def _reason(self, found: Difference, nodes: Sequence[BackwardNode], raw: RawCapture) -> RecaptureReason:
        node = nodes[found.number] if found.number is not None else None
        subject, after = found.subject, found.after
        if found.hook is not None and found.hook.function:
            subject = f"{subject} {found.hook.function}:"
        known = {number: name for each in self._captured for number, name in each.parameters.items()}
        names = sorted(name for number, name in known.items() if number in found.leaves)
        if names:
            after = f"{after} ({'no longer reached' if _is_left_out(found) else 'reached now'}: {', '.join(names)})"
        location = (_line_of(found.hook) if found.hook is not None else None) or (node.location if node is not None else None)
        text = raw.miss.text if raw.miss is not None else ""
        return RecaptureReason(found.kind, subject, found.before, after, node, location, text)


def _is_left_out(found: Difference) -> bool:
    return found.after.startswith("none")


def _hooks_of_graph(raw: RawCapture) -> HooksOf:
    found: dict[int, list[RawHook]] = {}
    for node in raw.graph.graph.nodes:
        if fx.kind_of(node) == "hook" and (number := fx.origin_of(node)) is not None:
            index, kind = fx.hook_number(node), fx.hook_kind(node)
            known = raw.hooks[index] if index is not None and index < len(raw.hooks) else RawHook(kind, "")
            found.setdefault(number, []).append(known._replace(kind=kind))
    return found


def _node(number: int, raw: RawNode, captured: _Captured, hooks: HooksOf, capture: RawCapture) -> BackwardNode:
    location = named(found) if (found := user_location([RawFrame(*line) for line in raw.stack])) is not None else None
    if location is None and raw.defined_at is not None:
        location = location_of(RawFrame(*raw.defined_at, f"{raw.function.rpartition('.')[2]}.forward"))
    return BackwardNode(
        number,
        raw.name,
        location,
        raw.function,
        captured.parameters.get(raw.parameter, "") if raw.parameter is not None else "",
        tuple(_hook(each) for each in hooks.get(number, ())),
        sum(fx.kind_of(each) == "operation" and fx.origin_of(each) == number for each in capture.graph.graph.nodes),
    )


def _hook(raw: RawHook) -> BackwardHook:
    kind: HookKind = raw.kind  # type: ignore[assignment]
    return BackwardHook(kind, raw.function, _line_of(raw))


def _line_of(hook: RawHook) -> Location | None:
    return location_of(RawFrame(hook.file, hook.line, hook.function)) if hook.file else None


def _unknown(raw: RawCapture) -> RecaptureReason:
    return RecaptureReason("unknown", "", torch=raw.miss.text if raw.miss is not None else "nothing")


def _moved(before: Sequence[str], after: Sequence[str]) -> int:
    """Return how many nodes are no longer after the node that they followed; nodes that torch removed do not count."""
    kept = set(after)
    old = [name for name in before if name in kept]
    followed = dict(zip(old[1:], old, strict=False))
    return sum(followed.get(name, previous) != previous for previous, name in pairwise(after))


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
    with Observation(log._add, log._error), enabled(compiled, dynamic=bool(dynamic)):
        if lines and not anomaly[0]:
            torch.autograd.set_detect_anomaly(True, check_nan=False)
        try:
            yield log
        finally:
            if lines and not anomaly[0]:
                torch.autograd.set_detect_anomaly(*anomaly)
