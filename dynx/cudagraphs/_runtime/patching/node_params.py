"""Reading the parameters of the nodes of a captured CUDA graph, and setting the input pointers in the executable graph.

In the CUDA driver API, parameters of a kernel node are stored where `kernelParams` points to, or packed in a buffer that
`extra` names (by cuBLAS); `cuFuncGetParamInfo` returns the offset and size of each. This module never writes to memory that
the driver owns.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch

from dynx.cudagraphs._runtime import driver
from dynx.cudagraphs._runtime.patching.pointer_scan import NodeParams, NotPatchable, ScanResult
from dynx.errors import CaptureFailed

_BUFFER_POINTER = 1  # CU_LAUNCH_PARAM_BUFFER_POINTER in `extra`, a list of pairs: the next entry is the address of the buffer
_ALIGNMENT = 16  # bytes; the allocator aligns to more, but kernels that were chosen for its memory rely on at most this


def read_node_params(graph: torch.cuda.CUDAGraph) -> list[NodeParams]:
    """Return the parameters of the nodes of a graph, in the order in which they were captured."""
    return [_node_params(node) for node in driver.graph_nodes(graph.raw_cuda_graph())]


def _node_params(node: Any) -> NodeParams:
    api = driver.import_driver()
    kind, kinds = driver.check_result(api.cuGraphNodeGetType(node)), api.CUgraphNodeType
    if kind == kinds.CU_GRAPH_NODE_TYPE_KERNEL:
        params = driver.check_result(api.cuGraphKernelNodeGetParams(node))
        grid = [int(getattr(params, f"{level}Dim{axis}")) for level in ("grid", "block") for axis in "XYZ"]
        operation = int(params.func), int(params.kern), *grid, int(params.sharedMemBytes)
        return NodeParams("kernel", operation, tuple(_kernel_fields(params)))
    if kind == kinds.CU_GRAPH_NODE_TYPE_MEMCPY:
        params = driver.check_result(api.cuGraphMemcpyNodeGetParams(node))
        size = int(params.WidthInBytes), int(params.Height), int(params.Depth)
        addresses = int(params.srcDevice), int(params.dstDevice)
        return NodeParams("memcpy", size, tuple((0, address.to_bytes(8, "little")) for address in addresses))
    if kind == kinds.CU_GRAPH_NODE_TYPE_MEMSET:
        params = driver.check_result(api.cuGraphMemsetNodeGetParams(node))
        operation = int(params.value), int(params.elementSize), int(params.width), int(params.height)
        return NodeParams("memset", operation, ((0, int(params.dst).to_bytes(8, "little")),))
    return NodeParams("empty" if kind == kinds.CU_GRAPH_NODE_TYPE_EMPTY else "other", ())


def _kernel_fields(params: Any) -> list[tuple[int, bytes]]:
    """Return the offset and the bytes of each parameter of a kernel node."""
    layout = _param_layout(params)
    if params.kernelParams:
        pointers = (ctypes.c_void_p * max(1, len(layout))).from_address(int(params.kernelParams))
        return [(begin, ctypes.string_at(pointers[index] or 0, size)) for index, (begin, size) in enumerate(layout)]
    if not params.extra:
        return []
    extra = (ctypes.c_void_p * 5).from_address(int(params.extra))
    buffer = next((extra[index + 1] or 0 for index in (0, 2) if extra[index] == _BUFFER_POINTER), 0)
    if not buffer or not layout:
        raise NotPatchable("the CUDA driver does not report where the parameters of a kernel node are stored")
    return [(begin, ctypes.string_at(buffer + begin, size)) for begin, size in layout]


def _param_layout(params: Any) -> list[tuple[int, int]]:
    """Return offset and size of each parameter of a kernel."""
    api = driver.import_driver()
    get_info, function = (api.cuFuncGetParamInfo, params.func) if int(params.func) else (api.cuKernelGetParamInfo, params.kern)
    layout: list[tuple[int, int]] = []
    while True:
        error, *info = get_info(function, len(layout))
        if int(error) != 0:  # there are no more parameters
            return layout
        layout.append((int(info[0]), int(info[1])))


class InputPointers:
    """The pointers to inputs in an executable graph; `set` changes them by passing changed node parameters to the driver.

    `scan` contains their locations, and the locations of padding with old addresses (stale bytes), which is overwritten.
    """

    def __init__(self, executable: driver.ExecutableGraph, scan: ScanResult, inputs: int) -> None:
        self._executable, self._kept_alive = executable, list[Any]()
        self._context = driver.current_context()
        nodes = driver.graph_nodes(executable.graph.raw_cuda_graph())
        patched = {pointer.node for pointer in scan.pointers} | {stale.node for stale in scan.stale}
        copies = {index: self._copy_params(nodes[index]) for index in patched}
        self._cells: list[list[tuple[ctypes.c_uint64, int]]] = [[] for _ in range(inputs)]  # with offset from the input's start
        # for each input, the functions that update its nodes: a node is updated once, however many of its inputs change
        self._updates: list[dict[Callable[[], int], None]] = [{} for _ in range(inputs)]
        for stale in scan.stale:
            fields, update = copies[stale.node]
            ctypes.memmove(fields[stale.field] + stale.offset, stale.replacement, len(stale.replacement))
            _check_error(update())
        for pointer in scan.pointers:
            fields, update = copies[pointer.node]
            cell = ctypes.c_uint64.from_address(fields[pointer.field] + pointer.offset)
            self._cells[pointer.tensor].append((cell, pointer.delta))
            self._updates[pointer.tensor][update] = None
        self._current: list[int | None] = [None] * inputs  # addresses of the inputs that are set; None if unknown
        self._aligned_inputs: dict[int, torch.Tensor] = {}  # copies of inputs that are not aligned to _ALIGNMENT
        executable.on_instantiate.append(partial(self._current.__setitem__, slice(None), self._current.copy()))
        self.set = self._make_single_setter() if inputs == 1 else self._set_all

    def _make_single_setter(self) -> Callable[[Sequence[torch.Tensor]], None]:
        """Return a faster version of `_set_all` for a graph with one input."""
        current, context, set_all = self._current, self._context, self._set_all
        cells, updates = tuple(self._cells[0]), tuple(self._updates[0])

        def set_single(tensors: Sequence[torch.Tensor]) -> None:
            address = tensors[0].data_ptr()
            if address == current[0]:
                return
            if address % _ALIGNMENT or not context.is_entered:
                set_all(tensors)
                return
            current[0] = None  # until the driver has taken all pointers
            for cell, delta in cells:
                cell.value = address + delta
            for update in updates:
                if error := update():
                    _check_error(error)
            current[0] = address

        return set_single

    def _set_all(self, tensors: Sequence[torch.Tensor]) -> None:
        """Set the pointers to the inputs for the next replays: to `tensors`, or to copies of those that are not aligned."""
        addresses, current = [tensor.data_ptr() for tensor in tensors], self._current
        if addresses == current:
            return
        if not self._context.is_entered:
            self._context.enter()
        updates: dict[Callable[[], int], None] = {}
        taken: dict[int, int] = {}  # by index of the input
        for index, address in enumerate(addresses):
            if address != current[index]:
                current[index] = None  # until the driver has taken all pointers
                if address % _ALIGNMENT:  # it stays None, so that the input is copied in each call
                    self._aligned_inputs[index] = copy = tensors[index].clone()
                    address = copy.data_ptr()
                else:
                    taken[index] = address
                for cell, delta in self._cells[index]:
                    cell.value = address + delta
                updates |= self._updates[index]
        for update in updates:
            _check_error(update())
        for index, address in taken.items():
            current[index] = address

    def _copy_params(self, node: Any) -> tuple[list[int], Callable[[], int]]:
        """Copy the parameters of a node, so that pointers in them can be changed.

        Returns the addresses of the copied fields, and a function that sets the node's parameters to the copies in the
        executable graph and returns the driver's error code.
        """
        api = driver.import_driver()
        if driver.check_result(api.cuGraphNodeGetType(node)) == api.CUgraphNodeType.CU_GRAPH_NODE_TYPE_MEMCPY:
            params = driver.check_result(api.cuGraphMemcpyNodeGetParams(node))
            self._kept_alive.append(params)
            fields = [int(params.getPtr()) + offset for offset in (driver.MEMCPY_SOURCE, driver.MEMCPY_TARGET)]
            return fields, driver.memcpy_setter(self._executable, node, params, self._context)
        params = driver.check_result(api.cuGraphKernelNodeGetParams(node))
        fields = [self._copy_aligned(data) for _, data in _kernel_fields(params)]
        array = (ctypes.c_void_p * max(1, len(fields)))(*fields)
        params.kernelParams, params.extra = ctypes.addressof(array), 0
        self._kept_alive += [params, array]
        return fields, driver.bound("cuGraphExecKernelNodeSetParams_v2", self._executable, node, params.getPtr())

    def _copy_aligned(self, data: bytes) -> int:
        """Copy bytes to memory aligned to 128 bytes, which suits any parameter, and return the address."""
        memory = ctypes.create_string_buffer(len(data) + 128)
        self._kept_alive.append(memory)
        start = -(-ctypes.addressof(memory) // 128) * 128
        ctypes.memmove(start, data, len(data))
        return start


def _check_error(error: int) -> None:
    if error:
        raise CaptureFailed(f"setting the parameters of a node in the executable graph failed with CUDA error {error}")
