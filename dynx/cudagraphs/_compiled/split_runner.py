"""Run a graph in pieces: operators that cannot be captured run eagerly, pieces between them are captured and replayed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from threading import RLock, get_ident
from typing import Any, NamedTuple

import torch
from torch.fx import GraphModule, Node

from dynx._fx.effects import mutated_inputs
from dynx._fx.nodes import location_of, placeholders, value_of
from dynx._torch.autograd import aot
from dynx._torch.autograd.saved_tensors import hooks_are_set
from dynx.cudagraphs._compiled.address_changes import SharedFacts
from dynx.cudagraphs._compiled.runner import Runner
from dynx.cudagraphs._config import Config
from dynx.cudagraphs._graph.partition import partition
from dynx.cudagraphs._graph.split import Piece, split
from dynx.cudagraphs._recording.inputs import own_copy
from dynx.cudagraphs._recording.replayable import Call
from dynx.cudagraphs._runtime.capture_lock import trying_threads
from dynx.cudagraphs._runtime.interface import Runtime
from dynx.records.cudagraphs import GraphInput, GraphPiece, GraphPlan, Skip

_MIN_LAUNCHES = 3  # a replay with its checks and copies takes the time of two or three kernel launches


def describe_pieces(gm: GraphModule, plan: GraphPlan, unsafe: dict[Node, Skip]) -> tuple[GraphPiece, ...]:
    """Return the pieces that a graph with uncapturable nodes is split into; an empty tuple if no piece is worth capturing."""
    parts = partition(gm, unsafe)
    pieces = split(gm, parts, plan.user_outputs, plan.regenerated)
    reasons = [_why_uncaptured(part, piece, unsafe) for part, piece in zip(parts, pieces, strict=True)]
    if all(reasons):
        return ()
    return tuple(
        GraphPiece(_names(piece.inputs), _names(piece.results), piece.launches, reason, _names(part))
        for part, piece, reason in zip(parts, pieces, reasons, strict=True)
    )


def split_runner(
    gm: GraphModule,
    plan: GraphPlan,
    config: Config,
    runtime: Runtime,
    facts: SharedFacts,
    compile_piece: Callable[[GraphModule], Call],
) -> SplitRunner:
    """Return the SplitRunner of a graph that `plan` splits into pieces; only the pieces that are captured are compiled."""
    nodes = {node.name: node for node in gm.graph.nodes}
    parts = [[nodes[name] for name in piece.nodes] for piece in plan.pieces]
    pieces = split(gm, parts, plan.user_outputs, plan.regenerated)
    is_captured = [not piece.why_uncaptured for piece in plan.pieces]
    captured = {node for piece, yes in zip(pieces, is_captured, strict=True) if yes for node in piece.results}
    inputs = dict(zip(placeholders(gm), plan.inputs, strict=True))
    calls: list[tuple[Piece, Call]] = []
    for piece, yes in zip(pieces, is_captured, strict=True):
        if yes:
            piece_plan = _plan_of(piece, plan, inputs, captured)
            call: Call = Runner(compile_piece(piece.gm), piece_plan, config, runtime, facts, has_own_pools=True)
        else:
            call = eager_call(piece.gm)
        calls.append((piece, call))
    clones = config.outputs == "clone" or plan.part == "backward"  # autograd keeps the first gradient, and adds to it
    return SplitRunner(gm, calls, plan, runtime, clones=clones)


def saved_outside(gm: GraphModule, plan: GraphPlan) -> set[str]:
    """Return the names of tensors that are saved for the backward pass, but are not in the memory of a recording.

    They are dynamic inputs of the forward graph, or results of pieces that are not captured.
    """
    inputs = {node.name: spec for node, spec in zip(placeholders(gm), plan.inputs, strict=True)}
    recorded = {name for piece in plan.pieces if not piece.why_uncaptured for name in piece.outputs}
    outputs = gm.graph.output_node().args[0][plan.user_outputs :]
    saved = (node.name for node in outputs if isinstance(node, Node))
    return {name for name in saved if (inputs[name].kind == "dynamic" if name in inputs else name not in recorded)}


def eager_call(gm: GraphModule) -> Call:
    """Return a function that takes the inputs of a graph in a list, and runs its operators eagerly."""
    call: Call = aot.boxed(lambda args: gm(*args))
    return call


def _names(nodes: Sequence[Node]) -> tuple[str, ...]:
    return tuple(node.name for node in nodes)


def _why_uncaptured(part: Sequence[Node], piece: Piece, unsafe: dict[Node, Skip]) -> str:
    nodes = set(part)
    for node, skip in unsafe.items():
        if node in nodes:
            return skip.reason
    few = "kernel launch" if piece.launches == 1 else "kernel launches"
    return "" if piece.launches >= _MIN_LAUNCHES else f"not worth capturing: only {piece.launches} {few}"


def _plan_of(piece: Piece, whole: GraphPlan, inputs: dict[Node, GraphInput], captured: Collection[Node]) -> GraphPlan:
    """Return the plan of a piece of a graph whose plan is `whole`.

    `inputs` are the inputs of the whole graph; `captured` are the nodes that captured pieces return, at fixed addresses.
    """
    mutated = mutated_inputs(piece.gm)
    specs = []
    for index, node in enumerate(piece.inputs):
        if node in inputs:
            specs.append(replace(inputs[node], is_mutated=index in mutated))
        elif not isinstance(value_of(node), torch.Tensor):
            specs.append(GraphInput(node.name, "scalar", "a number"))
        elif node in captured:
            specs.append(GraphInput(node.name, "managed", "a result of another piece", index in mutated))
        else:  # its layout may differ from that of the fake tensor
            why = "a result that was not captured"
            specs.append(GraphInput(node.name, "dynamic", why, index in mutated, location=location_of(node)))
    return GraphPlan(whole.part, tuple(specs), piece.user_outputs, is_pure=not mutated, regenerated=piece.regenerated)


class _Step(NamedTuple):
    """A piece of a split graph: its callable, and the slots (indices in a list of values) of its inputs and results."""

    call: Call
    inputs: list[int]  # slots
    results: list[tuple[int, int]]  # index of the result, slot
    is_captured: bool
    user_results: frozenset[int]  # indices of results that the user gets
    last_used: list[int]  # slots that no later step reads


class SplitRunner:
    """A callable that runs the pieces of a split graph in order, and passes values between them in a list of slots.

    The first slots hold the arguments of the graph, the others the results of pieces.
    """

    def __init__(
        self, gm: GraphModule, pieces: Sequence[tuple[Piece, Call]], plan: GraphPlan, runtime: Runtime, *, clones: bool
    ) -> None:
        self._is_capturing = runtime.is_capturing
        self._clones, self._saves, user_outputs = clones, plan.part == "forward", plan.user_outputs
        slots = {node: slot for slot, node in enumerate(placeholders(gm))}
        user_slots: dict[Node, int] = {}  # of results for the user; pieces read the same nodes from `slots`
        self._steps: list[_Step] = []
        self.runners = [call for _, call in pieces if isinstance(call, Runner)]
        for piece, call in pieces:
            results = []
            for index, node in enumerate(piece.results):
                target = slots if index >= piece.user_outputs else user_slots
                target[node] = len(slots) + len(user_slots)
                results.append((index, target[node]))
            inputs = [slots[node] for node in piece.inputs]
            user_results = frozenset(range(piece.user_outputs)) - {*piece.regenerated}
            self._steps.append(_Step(call, inputs, results, isinstance(call, Runner), user_results, []))
        outputs = list(gm.graph.output_node().args[0])
        self._outputs = [
            (user_slots.get(node, slots.get(node)) if index < user_outputs else slots[node]) if isinstance(node, Node) else None
            for index, node in enumerate(outputs)
        ]
        static = {slot for slot, spec in enumerate(plan.inputs) if spec.kind == "static"}
        self._saved = {index for index, slot in enumerate(self._outputs) if index >= user_outputs and slot not in static}
        self._constants = [None if isinstance(output, Node) else output for output in outputs]
        self._size = len(slots) + len(user_slots)
        self._find_last_uses()
        self._lock = RLock()
        self._is_busy = False
        self._boxed_call = True  # see Runner

    def _find_last_uses(self) -> None:
        """Find the last piece that reads each slot; the value in the slot is freed after this piece has run."""
        used_later = {slot for slot in self._outputs if slot is not None}
        for step in reversed(self._steps):
            step.last_used.extend(slot for slot in dict.fromkeys(step.inputs) if slot not in used_later)
            used_later.update(step.inputs)

    def __call__(self, args: list[Any]) -> list[Any]:
        # part of an outer capture: no lock, since its holder may wait for the end of that capture
        if self._is_capturing() or (trying_threads and get_ident() in trying_threads):
            return self._run(args, is_nested=True)
        with self._lock:  # values that pieces pass to others are in the memory of recordings
            is_nested, self._is_busy = self._is_busy, True  # an operator may call the compiled function
            try:
                return self._run(args, is_nested=is_nested)
            finally:
                self._is_busy = is_nested

    def _run(self, args: list[Any], *, is_nested: bool) -> list[Any]:
        values = [*args, *[None] * (self._size - len(args))]
        args.clear()
        recorded = set[int]()  # addresses of storages that later calls overwrite
        for step in self._steps:
            call = step.call.call if is_nested and isinstance(step.call, Runner) else step.call
            results = call([values[slot] for slot in step.inputs])
            for index, slot in step.results:
                values[slot] = results[index]
                if not self._clones:
                    continue
                storage = _storage_of(results[index])
                if not step.is_captured and index in step.user_results and storage in recorded:
                    values[slot] = own_copy(results[index])
                elif storage and step.is_captured and index not in step.user_results:
                    recorded.add(storage)
            for slot in step.last_used:
                values[slot] = None
        outputs = [
            constant if slot is None else values[slot] for slot, constant in zip(self._outputs, self._constants, strict=True)
        ]
        if self._saves and hooks_are_set():  # as in `Runner`
            for index in self._saved:
                if isinstance(output := outputs[index], torch.Tensor):
                    outputs[index] = output.clone()
        return outputs


def _storage_of(value: Any) -> int:
    """Return the address of a tensor's storage; 0 if the value is not a tensor."""
    return value.untyped_storage().data_ptr() if isinstance(value, torch.Tensor) else 0
