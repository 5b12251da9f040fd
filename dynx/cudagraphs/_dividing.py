"""Capturing what lies between the operators that cannot be captured."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch.fx import GraphModule, Node

from dynx._torch.autograd import aot
from dynx.cudagraphs._config import Config
from dynx.cudagraphs._divided import Divided
from dynx.cudagraphs._graph import location_of, placeholders, value_of
from dynx.cudagraphs._moves import Shared
from dynx.cudagraphs._mutation import mutated_inputs
from dynx.cudagraphs._partition import parts_of
from dynx.cudagraphs._pieces import Piece, pieces_of
from dynx.cudagraphs._runner import Runner
from dynx.cudagraphs.runtime import Runtime
from dynx.records.cudagraphs import GraphInput, GraphPiece, GraphPlan, Skip

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
