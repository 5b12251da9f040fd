"""Records of captures: what the graph of each contains, and what differs from the earlier captures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import torch

from dynx._reading.names_in_modules import names_in_modules
from dynx._reading.user_location import call_site, location_of, named, user_location
from dynx._torch.autograd import captured_graph as fx
from dynx._torch.autograd.captures import RawCapture, uncaptured
from dynx._torch.autograd.nodes import RawHook, RawNode
from dynx._torch.tracing.stack import RawFrame
from dynx._trace.subscribers import generation
from dynx.autograd._differences import Difference, HooksOf, differences, is_certain
from dynx.autograd._order import check_order
from dynx.records.backward import (
    BackwardCapture,
    BackwardHook,
    BackwardNode,
    CaptureVerdict,
    HookKind,
    OrderError,
    RecaptureReason,
)
from dynx.records.location import Location

_ROOT = RawNode("GraphRoot", {})


@dataclass(frozen=True)
class _Calls:
    """The hooks that an autograd node has in a captured graph: their kinds, and their indices into the graph's hooks."""

    kind: str
    index: int | None


@dataclass(frozen=True)
class _Captured:
    raw: RawCapture
    generation: int
    location: Location | None
    names: Mapping[int, str]  # of parameters and modules, by id
    operations: Counter[str | int | None]  # of the graph, by the number of the node, or by "aot0"
    calls: Mapping[int, Sequence[_Calls]]
    eager: frozenset[int | None]  # numbers of nodes
    dynamic_sizes: int
    sized: frozenset[int]  # numbers of the nodes that read a dynamic size
    order_errors: tuple[OrderError, ...]
    moved: int

    @property
    def hooks(self) -> HooksOf:
        return {number: [self._hook(call) for call in calls] for number, calls in self.calls.items()}

    def nodes(self) -> list[BackwardNode]:
        """Return the records of the autograd nodes, in the order of the pass."""
        hooks = self.hooks
        return [
            replace(
                _node(number, raw, self.names),
                hooks=tuple(map(_hook, hooks.get(number, ()))),
                operations=self.operations[number] + (self.operations[raw.function] if raw.function else 0),
                is_eager=number in self.eager,
            )
            for number, raw in enumerate([_ROOT, *self.raw.nodes])
        ]

    def _hook(self, call: _Calls) -> RawHook:
        is_known = call.index is not None and call.index < len(self.raw.hooks)
        return (self.raw.hooks[call.index] if is_known else RawHook("", ""))._replace(kind=call.kind)  # type: ignore[index]


class Captures:
    """All captures of a block or a watch, from which `record` makes records: only their order tells what is a recapture."""

    def __init__(self) -> None:
        self._captured: list[_Captured] = []

    def __len__(self) -> int:
        return len(self._captured)

    def add(self, raw: RawCapture) -> None:
        """Read the graph of a capture that has just ended, and names of parameters and modules, which may not live long."""
        nodes = list(raw.graph.graph.nodes)
        calls: dict[int, list[_Calls]] = {}
        for node in nodes:
            if fx.kind_of(node) == "hook" and (number := fx.origin_of(node)) is not None:
                calls.setdefault(number, []).append(_Calls(fx.hook_kind(node), fx.hook_number(node)))
        self._captured.append(
            _Captured(
                raw,
                self._generation(raw),
                call_site(),
                _names(raw),
                Counter(fx.compiled_graph_of(each) or fx.origin_of(each) for each in nodes if fx.kind_of(each) == "operation"),
                calls,
                frozenset(fx.origin_of(each) for each in nodes if fx.is_eager(each)),
                sum(fx.kind_of(node) == "size" for node in nodes),
                frozenset(fx.readers_of_sizes(raw.graph)),
                check_order(raw.graph),
                _moved(raw.before_reordering, [node.name for node in nodes]),
            )
        )

    def _generation(self, raw: RawCapture) -> int:
        """Return the generation of a capture: that of the compilations, which detect a reset only when they begin."""
        if not self._captured:
            return generation()
        last = self._captured[-1]
        return max(generation(), last.generation + (raw.emptied.resets > last.raw.emptied.resets))

    def record_of(self, raw: RawCapture) -> BackwardCapture:
        """Return the record of a capture, with the calls so far."""
        return self.record(next(index for index, each in enumerate(self._captured) if each.raw is raw))

    def record(self, index: int) -> BackwardCapture:
        """Return the record of a capture, with the calls so far, without its graph."""
        captured = self._captured[index]
        raw, phases = captured.raw, captured.raw.phases
        hooks = captured.hooks
        nodes = captured.nodes()
        earlier = self._cached(raw, self._captured[:index])
        found = differences(raw, hooks, [(each.raw, each.hooks) for each in earlier]) or _unread(captured, earlier)
        return BackwardCapture(
            captured.generation,
            f"!{raw.number}",
            captured.location,
            sum(phases.values()),
            tuple(self._reason(each, nodes, raw) for each in found) or (RecaptureReason("unknown", "", torch=raw.reason),),
            tuple(nodes),
            raw.inputs,
            raw.sizes,
            captured.dynamic_sizes,
            raw.calls,
            captured.order_errors,
            captured.moved,
            raw.began,
            phases,
        )

    @staticmethod
    def _cached(raw: RawCapture, earlier: Sequence[_Captured]) -> list[_Captured]:
        return [each for each in earlier if each.raw.emptied == raw.emptied]

    def predicted(self, tensors: Sequence[torch.Tensor]) -> CaptureVerdict:
        """Return whether `backward()` of tensors would be captured."""
        raw = uncaptured(tensors)
        earlier = self._cached(raw, self._captured)
        if not earlier:
            return CaptureVerdict("capture", (RecaptureReason("first", ""),))
        found = differences(raw, {}, [(each.raw, {}) for each in earlier])
        certain = [each for each in found if is_certain(each)]
        doubtful = [each for each in found if not is_certain(each)]
        names = _names(raw)
        nodes = [_node(number, node, names) for number, node in enumerate([_ROOT, *raw.nodes])]
        reasons = tuple(self._reason(each, nodes, raw) for each in (*certain, *doubtful))
        if certain:
            return CaptureVerdict("capture", reasons)
        why = (
            "torch may accept the difference, such as a number that it makes dynamic"
            if doubtful
            else "no difference from a capture can be read"
        )
        return CaptureVerdict("unknown", reasons, why)

    def _reason(self, found: Difference, nodes: Sequence[BackwardNode], raw: RawCapture) -> RecaptureReason:
        node = nodes[found.number] if found.number is not None else None
        subject, after, hook = found.subject, found.after, found.hook
        if hook is not None and hook.function:
            subject = f"{subject} {hook.function}:"
        known = {number: name for each in self._captured for number, name in each.names.items()}
        names = sorted(name for number, name in known.items() if number in found.leaves)
        if names:
            is_left_out = after.startswith("none")
            after = f"{after} ({'no longer reached' if is_left_out else 'reached now'}: {', '.join(names)})"
        location = (_line_of(hook) if hook is not None else None) or (node.location if node is not None else None)
        return RecaptureReason(found.kind, subject, found.before, after, node, location, raw.reason)


def _unread(captured: _Captured, earlier: Sequence[_Captured]) -> list[Difference]:
    """Return the change of a size that cannot be read, such as that of a view: it is dynamic in this capture only."""
    names = [node.name for node in captured.raw.nodes]
    same = [each for each in earlier if [node.name for node in each.raw.nodes] == names]
    if not same or captured.raw.sizes <= max(each.raw.sizes for each in same):
        return []
    new = captured.sized.difference(*(each.sized for each in same)) or captured.sized
    return [Difference("shape", min(new, default=None), "another size or index, which cannot be read")]


def _names(raw: RawCapture) -> dict[int, str]:
    return names_in_modules({each for node in raw.nodes for each in (node.parameter, node.module) if each is not None})


def _node(number: int, raw: RawNode, names: Mapping[int, str]) -> BackwardNode:
    location = named(found) if (found := user_location([RawFrame(*line) for line in raw.stack])) is not None else None
    if location is None and raw.defined_at is not None:
        location = location_of(RawFrame(*raw.defined_at, f"{raw.function.rpartition('.')[2]}.forward"))
    parameter, module = (names.get(each, "") if each is not None else "" for each in (raw.parameter, raw.module))
    return BackwardNode(number, raw.name, location, raw.function, parameter, module)


def _hook(raw: RawHook) -> BackwardHook:
    kind: HookKind = raw.kind  # type: ignore[assignment]
    return BackwardHook(kind, raw.function, _line_of(raw))


def _line_of(hook: RawHook) -> Location | None:
    return location_of(RawFrame(hook.file, hook.line, hook.function)) if hook.file else None


def _moved(before: Sequence[str], after: Sequence[str]) -> int:
    """Return how many nodes are no longer after the node that they followed; nodes that torch removed do not count."""
    kept = set(after)
    old = [name for name in before if name in kept]
    followed = dict(zip(old[1:], old, strict=False))
    return sum(followed.get(name, previous) != previous for previous, name in pairwise(after))
