"""Simulate the peak memory of the forward and the backward graph, and list the tensors allocated at the larger peak."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import Any, Literal

from torch.fx import Node

from dynx._fx.effects import memory_of
from dynx._fx.nodes import location_of, nbytes, placeholders, tensors_of
from dynx._fx.peak import Peak, peak_of
from dynx._torch.autograd.partition import Partition
from dynx.records.saved import PeakTensor, SavedTensor
from dynx.saved._graphs.describe import Graphs
from dynx.saved._graphs.pairs import saved_inputs

_SMALLEST = 0.01  # of the peak: smaller tensors are not recorded


class Peaks:
    """The simulated peaks, in bytes, of the forward and backward graph, before and after the graphs are edited."""

    def __init__(self, partition: Partition) -> None:
        self._partition = partition
        held = (saved for saved in Graphs(partition).saved() if saved.kind != "activation")
        self._held = {name for saved in held for name in (saved.node.name, saved.input.name)}
        self._before = self._simulate()

    def _simulate(self) -> tuple[Peak, Peak]:
        forward, backward = self._partition.forward, self._partition.backward
        held = [node for node in placeholders(backward) if node.name in self._held]
        return peak_of(forward, placeholders(forward)), peak_of(backward, held)

    def after(self, tensors: Sequence[SavedTensor]) -> dict[str, Any]:
        """Return the peaks after the graphs were edited, as fields of `SavedGraph`.

        Inputs of forward from which backward recomputes tensors are not counted: the caller holds them, like parameters.
        """
        names = {node.name for node in placeholders(self._partition.forward)}
        self._held |= {source for tensor in tensors for source in tensor.computed_from if source in names}
        forward, backward = self._simulate()
        return {
            "forward_peak": forward.bytes,
            "backward_peak": backward.bytes,
            "forward_peak_before": self._before[0].bytes,
            "backward_peak_before": self._before[1].bytes,
            "at_peak": tuple(_allocated(max(forward, backward, key=attrgetter("bytes")), self._partition)),
        }


def _allocated(peak: Peak, partition: Partition) -> Iterator[PeakTensor]:
    """Yield records of the tensors that are allocated at a peak, the largest first, without tensors below 1 % of the peak."""
    slots = saved_inputs(partition)
    memory = {**memory_of(partition.forward), **memory_of(partition.backward)}
    in_forward = {allocator for node in slots.values() for allocator in memory[node]}
    returned = {allocator for node in _results(partition) for allocator in memory[node]}
    sizes = {node: sum(map(nbytes, tensors_of(node))) for node in peak.nodes}
    for node, size in sorted(sizes.items(), key=lambda item: -item[1]):
        if size < peak.bytes * _SMALLEST:
            return
        is_saved = node in slots or node in in_forward
        role: Literal["saved", "output", "temporary"] = "saved" if is_saved else "output" if node in returned else "temporary"
        target = str(node.target) if node.op == "call_function" else ""
        yield PeakTensor(node.name, target, size, role, location_of(slots.get(node, node)))


def _results(partition: Partition) -> Iterator[Node]:
    """Yield the nodes that the graphs return: the results of forward for the user, and the gradients of backward."""
    results = partition.forward.graph.output_node().args[0][: partition.user_outputs]
    results = (*results, *partition.backward.graph.output_node().args[0])
    return (result for result in results if isinstance(result, Node))
