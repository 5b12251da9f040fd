"""Copies inside a captured graph, whose sources are set in the executable graph before a replay.

CUDA driver API: `cuGraphExecMemcpyNodeSetParams`, which affects later launches only, not those under way. Through ctypes, since
each call of cuda-bindings takes a microsecond; the structures are those of cuda-bindings.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import torch

from dynx.cudagraphs.runtime._copies import Addresses, copies_among
from dynx.cudagraphs.runtime._interface import Copy
from dynx.errors import CaptureFailed

_SOURCE = 48  # offset of srcDevice in CUDA_MEMCPY3D


def is_available() -> bool:
    """Tell whether cuda-bindings is there (`pip install dynx[cuda]`)."""
    try:
        from cuda.bindings import driver  # noqa: F401
    except ImportError:
        return False
    return True


class Sources:
    """The sources of the copies in a graph."""

    def __init__(self, graph: torch.cuda.CUDAGraph, copies: Sequence[Copy]) -> None:
        found = [(_addresses(params), (node, params)) for node, params in _memcpy_nodes(graph.raw_cuda_graph())]
        self._kept = copies_among(found, copies)  # memory of the driver's structures
        self._cells = [ctypes.c_uint64.from_address(int(params.getPtr()) + _SOURCE) for _, params in self._kept]
        self._nodes = [(int(node), int(params.getPtr())) for node, params in self._kept]
        self._exec, self._context = graph.raw_cuda_graph_exec(), int(_checked(_bindings().cuCtxGetCurrent()))
        self._set = _setter()

    def set(self, tensors: Sequence[torch.Tensor]) -> None:
        """Have the next replays copy from these tensors."""
        for tensor, cell, (node, params) in zip(tensors, self._cells, self._nodes, strict=True):
            address = tensor.data_ptr()
            if address != cell.value:
                cell.value = address
                if error := self._set(self._exec, node, params, self._context):
                    raise CaptureFailed(f"CUDA did not take the source of a copy: error {error}")


def _memcpy_nodes(raw_graph: int) -> list[tuple[Any, Any]]:
    driver = _bindings()
    graph = driver.CUgraph(raw_graph)
    _, count = _checked(driver.cuGraphGetNodes(graph, 0))
    nodes, count = _checked(driver.cuGraphGetNodes(graph, count))
    kind = driver.CUgraphNodeType.CU_GRAPH_NODE_TYPE_MEMCPY
    copies = [each for each in nodes[:count] if _checked(driver.cuGraphNodeGetType(each)) == kind]
    return [(each, _checked(driver.cuGraphMemcpyNodeGetParams(each))) for each in copies]


def _addresses(params: Any) -> Addresses:
    return int(params.dstDevice), int(params.srcDevice)


def _setter() -> Any:
    function = ctypes.PyDLL("libcuda.so.1").cuGraphExecMemcpyNodeSetParams
    function.argtypes, function.restype = [ctypes.c_void_p] * 4, ctypes.c_int
    return function


def _checked(result: tuple[Any, ...]) -> Any:
    error, *values = result
    if int(error) != 0:
        raise CaptureFailed(f"the CUDA driver said {error}")
    return values[0] if len(values) == 1 else values


def _bindings() -> Any:
    from cuda.bindings import driver

    return driver
