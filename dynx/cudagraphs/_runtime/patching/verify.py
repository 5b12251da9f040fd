"""Patching of the input pointers in a captured graph, and verification by replays that the graph reads the patched inputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

import torch

from dynx._reading.tensors import tensors_in
from dynx._torch.ops.memory_pools import segments
from dynx._torch.ops.raw_memory import holds_address
from dynx.cudagraphs._runtime.driver import ExecutableGraph, SetAddresses
from dynx.cudagraphs._runtime.interface import CapturedGraph, SelectClones
from dynx.cudagraphs._runtime.memcpy import extent, spread_copies
from dynx.cudagraphs._runtime.patching.node_params import InputPointers, read_node_params
from dynx.cudagraphs._runtime.patching.pointer_scan import (
    AddressRange,
    NodeParams,
    NotPatchable,
    ScanResult,
    UnexplainedDifference,
    find_input_pointers,
    points_into,
)


class _Graph(CapturedGraph, Protocol):
    graph: torch.cuda.CUDAGraph
    executable: ExecutableGraph

    def memory(self) -> Sequence[tuple[int, int]]:
        """Return start and end of the segments of the graph's memory pool."""


def make_verified_setter(
    first: _Graph,
    capture_again: Callable[[Sequence[torch.Tensor]], _Graph],
    input_sets: Sequence[Sequence[torch.Tensor]],
    inputs: Sequence[torch.Tensor],
    select_clones: SelectClones,
) -> SetAddresses:
    """Return a function that sets the pointers to inputs in the graph `first`, verified by replays.

    `input_sets` are two sets of copies of `inputs`, as `spread_copies` makes them. `first` was captured with the first set;
    `capture_again` captures the function with the set that it is called with. Raises NotPatchable if the pointers to inputs
    cannot be distinguished from other node parameters, or if verification failed.
    """
    ranges = [(_range(tensor), _range(second_tensor)) for tensor, second_tensor in zip(*input_sets, strict=True)]
    scan = _scan(first, capture_again, input_sets, ranges)
    storages = {tensor.untyped_storage().data_ptr() for tensor in input_sets[0]}
    if any(output.untyped_storage().data_ptr() in storages for output in tensors_in(first.outputs)):
        raise NotPatchable("an output of the graph aliases an input, so its address cannot be patched")
    if points_into(read_node_params(first.graph), [_range(tensor) for tensor in inputs]):
        raise NotPatchable("the captured function also reads an argument's tensor through a global, attribute or closure")
    pointers = InputPointers(first.executable, scan, len(ranges))

    def verify(_: Sequence[Any]) -> list[Any]:
        _verify(first, pointers, input_sets, select_clones)
        return []

    first.in_order(verify, [])([])  # graphs of other threads may use the same workspaces
    return pointers.set


_CAPTURES = 8  # at most, to recognize words that differ at random


def _scan(
    first: _Graph,
    capture_again: Callable[[Sequence[torch.Tensor]], _Graph],
    input_sets: Sequence[Sequence[torch.Tensor]],
    inputs: Sequence[tuple[AddressRange, AddressRange]],
) -> ScanResult:
    """Find the input pointers; capture again, up to `_CAPTURES` times, while node parameters differ for an unknown reason."""
    nodes = read_node_params(first.graph), read_node_params(capture_again(input_sets[1]).graph)
    repeats: tuple[list[list[NodeParams]], list[list[NodeParams]]] = ([], [])  # of the two sets, in turn
    filler: list[bytearray] = []
    for number in range(_CAPTURES):
        repeats[number % 2].append(read_node_params(capture_again(input_sets[number % 2]).graph))
        try:
            return find_input_pointers(*nodes, repeats[0], inputs, _device_memory(), _host_memory(), repeats[1])
        except UnexplainedDifference:
            if number == _CAPTURES - 1:
                raise
            filler += [bytearray(1000 * size) for size in range(1, 100)]  # so that host allocations get new addresses
    raise AssertionError("unreachable")


def _verify(
    graph: _Graph, pointers: InputPointers, input_sets: Sequence[Sequence[torch.Tensor]], select_clones: SelectClones
) -> None:
    """Verify `pointers`: replay with inputs at new addresses and garbage at the old addresses; the outputs must not change.

    The graph must not write old addresses to memory: for other inputs, a kernel might read from them. Raises NotPatchable.
    """
    expected = _replay_as_bytes(graph, select_clones)
    for seed in (2, 3):
        fresh = spread_copies(input_sets[0], seed)
        for tensor in (*input_sets[0], *input_sets[1]):
            _fill_with_garbage(tensor)
        pointers.set(fresh)
        actual = _replay_as_bytes(graph, select_clones)
        if not all(torch.equal(before, after) for before, after in zip(expected, actual, strict=True)):
            raise NotPatchable("a replay returned other outputs after equal inputs were passed at new addresses")
        old = [_range(tensor) for tensor in (*input_sets[0], *input_sets[1])]
        if holds_address(graph.memory(), old, torch.device("cuda", torch.cuda.current_device())):
            raise NotPatchable("the graph writes the address of an input to memory, where patching cannot change it")
        input_sets = [fresh, input_sets[0]]


def _replay_as_bytes(graph: _Graph, select_clones: SelectClones) -> list[torch.Tensor]:
    """Replay the graph, and return its outputs as bytes, since NaN does not compare equal to NaN."""
    device = torch.cuda.current_device()
    generator = torch.cuda.default_generators[device]
    offset = generator.get_offset()
    targets = [torch.empty_like(output) for output in select_clones(graph.outputs)]
    graph.set_targets(targets)
    graph.graph.replay()
    del targets  # not before: another thread that works on this stream would get memory that the replay writes to
    if generator.get_offset() != offset:
        generator.set_offset(offset)
        raise NotPatchable("the graph draws random numbers, so patched pointers cannot be verified by replaying it")
    outputs = [output for output in tensors_in(graph.outputs) if output.numel()]
    return [output.detach().contiguous().view(-1).view(torch.uint8).clone() for output in outputs]


def _fill_with_garbage(tensor: torch.Tensor) -> None:
    if tensor.is_floating_point() or tensor.is_complex():
        tensor.fill_(float("nan"))
    else:  # 0 or 1, which are valid if the tensor holds indices
        tensor.fill_(0 if tensor.any() else 1)


def _range(tensor: torch.Tensor) -> AddressRange:
    return AddressRange(tensor.data_ptr(), tensor.data_ptr() + extent(tensor) * tensor.element_size())


def _device_memory() -> list[AddressRange]:
    """Return the memory segments of torch's CUDA allocator as sorted address ranges."""
    return sorted(AddressRange(each["address"], each["address"] + each["total_size"]) for each in segments())


def _host_memory() -> list[AddressRange]:
    """Return the writable memory of this process as sorted address ranges, as Linux lists it; empty on other systems."""
    maps = Path("/proc/self/maps")
    lines = maps.read_text().splitlines() if maps.exists() else ()
    mappings = [line.split() for line in lines]  # "7f00-7f10 rw-p …"
    return [AddressRange(*(int(end, 16) for end in words[0].split("-"))) for words in mappings if words[1].startswith("rw")]
