"""A graph that runs in pieces, some of them from recordings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import RLock
from typing import Any, NamedTuple

import torch
from torch.fx import GraphModule, Node

from dynx._torch.autograd.saved_tensors import hooks_are_set
from dynx.cudagraphs._graph import placeholders
from dynx.cudagraphs._pieces import Piece
from dynx.cudagraphs._runner import Runner
from dynx.cudagraphs._staging import own_copy
from dynx.records.cudagraphs import GraphPlan

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
