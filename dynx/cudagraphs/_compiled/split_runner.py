"""Run a graph in pieces around the operators that cannot be captured, some of the pieces from recordings."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from threading import RLock
from typing import Any, NamedTuple

import torch
from torch.fx import GraphModule, Node

from dynx._torch.autograd import aot
from dynx._torch.autograd.saved_tensors import hooks_are_set
from dynx.cudagraphs._compiled.address_changes import Shared
from dynx.cudagraphs._compiled.runner import Runner
from dynx.cudagraphs._config import Config
from dynx.cudagraphs._graph.effects import mutated_inputs
from dynx.cudagraphs._graph.fx import location_of, placeholders, value_of
from dynx.cudagraphs._graph.partition import parts_of
from dynx.cudagraphs._graph.split import Piece, pieces_of
from dynx.cudagraphs._recording.inputs import own_copy
from dynx.cudagraphs._runtime.interface import Runtime
from dynx.records.cudagraphs import GraphInput, GraphPiece, GraphPlan, Skip

Call = Callable[[list[Any]], Sequence[Any]]


class _Step(NamedTuple):
    call: Call
    inputs: list[int]
    results: list[tuple[int, int]]  # of the call, and where they go
    is_captured: bool
    handed_out: frozenset[int]  # results that the user gets
    last_used: list[int]


class Divided:
    """Calls its pieces in turn. Values have places: those of the arguments first, then the others."""

    def __init__(self, gm: GraphModule, pieces: Sequence[tuple[Piece, Call]], plan: GraphPlan, *, clones: bool) -> None:
        self._clones, self._saves, user_outputs = clones, plan.part == "forward", plan.user_outputs
        places = {node: place for place, node in enumerate(placeholders(gm))}
        copies: dict[Node, int] = {}  # of results that are outputs, and inputs of other pieces too: these stay where they are
        self._steps: list[_Step] = []
        self.runners = [call for _, call in pieces if isinstance(call, Runner)]
        for piece, call in pieces:
            results = []
            for number, node in enumerate(piece.results):
                into = places if number >= piece.user_outputs else copies
                into[node] = len(places) + len(copies)
                results.append((number, into[node]))
            inputs = [places[each] for each in piece.inputs]
            handed_out = frozenset(range(piece.user_outputs)) - {*piece.regenerated}
            self._steps.append(_Step(call, inputs, results, isinstance(call, Runner), handed_out, []))
        outputs = list(gm.graph.output_node().args[0])
        self._outputs = [
            (copies.get(each, places.get(each)) if index < user_outputs else places[each]) if isinstance(each, Node) else None
            for index, each in enumerate(outputs)
        ]
        still = {place for place, each in enumerate(plan.inputs) if each.kind == "static"}
        self._saved = {index for index, place in enumerate(self._outputs) if index >= user_outputs and place not in still}
        self._constants = [None if isinstance(each, Node) else each for each in outputs]
        self._size = len(places) + len(copies)
        self._free()
        self._alone = RLock()
        self._is_busy = False
        self._boxed_call = True

    def _free(self) -> None:
        """Note where each value is used last, so that it does not live longer."""
        seen = {place for place in self._outputs if place is not None}
        for step in reversed(self._steps):
            step.last_used.extend(place for place in dict.fromkeys(step.inputs) if place not in seen)
            seen.update(step.inputs)

    def __call__(self, args: list[Any]) -> list[Any]:
        with self._alone:  # what one piece hands to another lies in recordings
            is_within, self._is_busy = self._is_busy, True  # an operator may call the compiled function
            try:
                return self._run(args, is_within)
            finally:
                self._is_busy = is_within

    def _run(self, args: list[Any], is_within: bool) -> list[Any]:
        values = [*args, *[None] * (self._size - len(args))]
        args.clear()
        recorded = set[int]()  # memory that later calls overwrite
        for step in self._steps:
            call = step.call.call if is_within and isinstance(step.call, Runner) else step.call
            found = call([values[place] for place in step.inputs])
            for number, place in step.results:
                values[place] = found[number]
                if not self._clones:
                    continue
                memory = _memory_of(found[number])
                if not step.is_captured and number in step.handed_out and memory in recorded:
                    values[place] = own_copy(found[number])
                elif memory and step.is_captured and number not in step.handed_out:
                    recorded.add(memory)
            for place in step.last_used:
                values[place] = None
        found = [
            constant if place is None else values[place] for place, constant in zip(self._outputs, self._constants, strict=True)
        ]
        if self._saves and hooks_are_set():  # as of a graph that is captured as a whole
            for index in self._saved:
                found[index] = found[index].clone() if isinstance(found[index], torch.Tensor) else found[index]
        return found


def _memory_of(value: Any) -> int:
    """Give where the memory of a tensor begins; 0 of what has none."""
    return value.untyped_storage().data_ptr() if isinstance(value, torch.Tensor) else 0


_WORTH_IT = 3  # launches: a replay with its checks and copies takes the time of two or three


def described_pieces(gm: GraphModule, plan: GraphPlan, unsafe: dict[Node, Skip]) -> tuple[GraphPiece, ...]:
    """Give the pieces that a graph is divided into; none where no piece is worth it."""
    parts = parts_of(gm, unsafe)
    pieces = pieces_of(gm, parts, plan.user_outputs, plan.regenerated)
    whys = [_why_not(part, piece, unsafe) for part, piece in zip(parts, pieces, strict=True)]
    if all(whys):
        return ()
    return tuple(
        GraphPiece(_names(piece.inputs), _names(piece.results), piece.launches, why, _names(part))
        for part, piece, why in zip(parts, pieces, whys, strict=True)
    )


def divided(gm: GraphModule, plan: GraphPlan, config: Config, runtime: Runtime, shared: Shared) -> Divided:
    """Make the call of a graph whose plan has pieces."""
    nodes = {each.name: each for each in gm.graph.nodes}
    parts = [[nodes[name] for name in each.nodes] for each in plan.pieces]
    pieces = pieces_of(gm, parts, plan.user_outputs, plan.regenerated)
    whys = [each.why_uncaptured for each in plan.pieces]
    captured = {node for piece, why in zip(pieces, whys, strict=True) if not why for node in piece.results}
    given = dict(zip(placeholders(gm), plan.inputs, strict=True))
    calls: list[tuple[Piece, Any]] = []
    for piece, why in zip(pieces, whys, strict=True):
        call = aot.boxed(_calling(piece.gm))
        if not why:
            of_piece = _plan_of(piece, plan, given, captured)
            call = Runner(call, of_piece, config, runtime, shared, has_own_pools=True)
        calls.append((piece, call))
    clones = config.outputs == "clone" or plan.part == "backward"  # autograd keeps the first gradient as it is given
    return Divided(gm, calls, plan, clones=clones)


def _names(nodes: Sequence[Node]) -> tuple[str, ...]:
    return tuple(each.name for each in nodes)


def moving_results(gm: GraphModule, plan: GraphPlan) -> set[str]:
    """Name what a forward graph saves elsewhere on each call: arguments, and results of pieces that are not captured."""
    given = {node.name: each for node, each in zip(placeholders(gm), plan.inputs, strict=True)}
    still = {name for piece in plan.pieces if not piece.why_uncaptured for name in piece.outputs}
    saved = (each.name for each in gm.graph.output_node().args[0][plan.user_outputs :] if isinstance(each, Node))
    return {name for name in saved if (given[name].kind == "dynamic" if name in given else name not in still)}


def _calling(gm: GraphModule) -> Callable[[list[Any]], Sequence[Any]]:
    return lambda args: gm(*args)


def _why_not(part: Sequence[Node], piece: Piece, unsafe: dict[Node, Skip]) -> str:
    here = set(part)
    for node, skip in unsafe.items():
        if node in here:
            return skip.reason
    return "" if piece.launches >= _WORTH_IT else f"a replay takes as long as {piece.launches} launches"


def _plan_of(piece: Piece, whole: GraphPlan, given: dict[Node, GraphInput], captured: Collection[Node]) -> GraphPlan:
    written = mutated_inputs(piece.gm)
    inputs = []
    for index, node in enumerate(piece.inputs):
        if node in given:
            inputs.append(replace(given[node], is_mutated=index in written))
        elif not isinstance(value_of(node), torch.Tensor):
            inputs.append(GraphInput(node.name, "scalar", "a number"))
        elif node in captured:
            inputs.append(GraphInput(node.name, "managed", "a result of another piece", index in written))
        else:  # whose layout may be another than was foreseen
            why = "a result that was not captured"
            inputs.append(GraphInput(node.name, "dynamic", why, index in written, location=location_of(node)))
    return GraphPlan(whole.part, tuple(inputs), piece.user_outputs, is_pure=not written, regenerated=piece.regenerated)
