"""Copies inside a captured graph, whose addresses are set in the executable graph before a replay.

CUDA driver API: `cuGraphExecMemcpyNodeSetParams`, which affects later launches only, not those under way. Through ctypes, since
each call of cuda-bindings takes a microsecond; the structures are those of cuda-bindings.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch

from dynx._torch.ops.cuda_graphs import current_stream_of
from dynx.cudagraphs._runtime.interface import Copy
from dynx.cudagraphs._runtime.memcpy import Addresses, copies_among
from dynx.errors import CaptureFailed

Setter = Callable[[Sequence[torch.Tensor]], None]

_pointer = ctypes.c_void_p  # made once, since ctypes makes one of each number in each call
_OFFSETS = {"from": 48, "to": 136}  # of srcDevice and dstDevice in CUDA_MEMCPY3D


def is_available() -> bool:
    """Tell whether cuda-bindings is there (`pip install dynx[cuda]`)."""
    try:
        from cuda.bindings import driver  # noqa: F401
    except ImportError:
        return False
    return True


class Context(threading.local):
    """A context of the driver, to be entered by threads that have none yet: the driver crashes without."""

    is_there = False  # in this thread

    def __init__(self, handle: int) -> None:  # called in each thread
        self.handle = handle

    def enter(self) -> None:
        self.is_there = True
        if not int(checked(bindings().cuCtxGetCurrent())):  # that of another device stays
            checked(bindings().cuCtxSetCurrent(self.handle))


def current_context() -> Context:
    return Context(int(checked(bindings().cuCtxGetCurrent())))


class Executable:
    """A graph as CUDA executes it, which is made anew after changes to the graph."""

    def __init__(self, graph: torch.cuda.CUDAGraph) -> None:
        self.graph, self.pointer = graph, _pointer(graph.raw_cuda_graph_exec())
        self.on_change: list[Callable[[], None]] = []  # of who knows what it was told

    def instantiate(self) -> None:
        self.pointer.value = None  # torch destroys the one before, also where it cannot make another
        self.graph.instantiate()
        self.pointer.value = self.graph.raw_cuda_graph_exec()
        for forget in self.on_change:
            forget()


def launching(executable: Executable, device: int) -> Callable[[], None]:
    """Give what launches a graph on the current stream: two thirds of the time of `graph.replay`."""
    launch = ctypes.PyDLL("libcuda.so.1").cuGraphLaunch
    launch.argtypes, launch.restype = [ctypes.c_void_p] * 2, ctypes.c_int
    pointer, current_stream = executable.pointer, current_stream_of(device)
    context = current_context()

    def replay() -> None:
        if not context.is_there:
            context.enter()
        if error := launch(pointer, current_stream()):
            raise CaptureFailed(f"CUDA did not launch a graph: error {error}")

    return replay


def addresses_of(executable: Executable, copies: Sequence[Copy], end: Literal["from", "to"]) -> Setter:
    """Give what sets where copies in a graph read from, or write to, in the next replays."""
    found = [(_addresses(params), (node, params)) for node, params in _memcpy_nodes(executable.graph.raw_cuda_graph())]
    kept = copies_among(found, copies)  # memory of the driver's structures
    context, pointer = current_context(), executable.pointer
    handle = _pointer(context.handle)
    set_params, offset = _setter(), _OFFSETS[end]
    cells = [ctypes.c_uint64.from_address(int(params.getPtr()) + offset) for _, params in kept]
    addresses: list[int | None] = [each.value for each in cells]
    nodes = [
        (number, cell, _pointer(int(node)), _pointer(int(params.getPtr())))
        for number, (cell, (node, params)) in enumerate(zip(cells, kept, strict=True))
    ]

    def set_addresses(tensors: Sequence[torch.Tensor]) -> None:
        for number, cell, node, params in nodes:
            address = tensors[number].data_ptr()
            if address != addresses[number]:
                cell.value = addresses[number] = address
                if not context.is_there:
                    context.enter()
                if error := set_params(pointer, node, params, handle):
                    raise CaptureFailed(f"CUDA did not take the address of a copy: error {error}")

    def forget() -> None:
        addresses[:] = [None] * len(addresses)

    executable.on_change.append(forget)
    set_addresses.kept = kept  # type: ignore[attr-defined]
    return set_addresses


def nodes_of(raw_graph: int) -> list[Any]:
    """Give the nodes of a graph, in the order in which they were captured."""
    driver = bindings()
    graph = driver.CUgraph(raw_graph)
    _, count = checked(driver.cuGraphGetNodes(graph, 0))
    nodes, count = checked(driver.cuGraphGetNodes(graph, count))
    return list(nodes[:count])


def _memcpy_nodes(raw_graph: int) -> list[tuple[Any, Any]]:
    driver = bindings()
    kind = driver.CUgraphNodeType.CU_GRAPH_NODE_TYPE_MEMCPY
    copies = [each for each in nodes_of(raw_graph) if checked(driver.cuGraphNodeGetType(each)) == kind]
    return [(each, checked(driver.cuGraphMemcpyNodeGetParams(each))) for each in copies]


def _addresses(params: Any) -> Addresses:
    return int(params.dstDevice), int(params.srcDevice)


def _setter() -> Any:
    function = ctypes.PyDLL("libcuda.so.1").cuGraphExecMemcpyNodeSetParams
    function.argtypes, function.restype = [ctypes.c_void_p] * 4, ctypes.c_int
    return function


def checked(result: tuple[Any, ...]) -> Any:
    error, *values = result
    if int(error) != 0:
        raise CaptureFailed(f"the CUDA driver said {error}")
    return values[0] if len(values) == 1 else values


def bindings() -> Any:
    from cuda.bindings import driver

    return driver
