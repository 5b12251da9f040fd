"""What the nodes of a captured CUDA graph hold, and setting the pointers among it in the executable graph.

CUDA driver API: parameters of kernels are where `kernelParams` points to, or packed in a buffer that `extra` names (cuBLAS does
so); `cuFuncGetParamInfo` says where each begins and how long it is. What the driver owns is never written to.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch

from dynx.cudagraphs._runtime.driver import Executable, bindings, checked, current_context, nodes_of
from dynx.cudagraphs._runtime.pointer_scan import NodeImage, NotPatchable, Words
from dynx.errors import CaptureFailed

_MEMCPY_SOURCE, _MEMCPY_TARGET = 48, 136  # of CUDA_MEMCPY3D
_BUFFER_POINTER = 1  # in `extra`, a list of pairs: what comes next is where the buffer is
_ALIGNED = 16  # bytes, at most, that kernels rely on; memory of the allocator, for which they were chosen, is aligned to more


def images_of(graph: torch.cuda.CUDAGraph) -> list[NodeImage]:
    """Read the nodes of a graph, in the order in which they were captured."""
    return [_image(each) for each in nodes_of(graph.raw_cuda_graph())]


def _image(node: Any) -> NodeImage:
    driver = bindings()
    kind, kinds = checked(driver.cuGraphNodeGetType(node)), driver.CUgraphNodeType
    if kind == kinds.CU_GRAPH_NODE_TYPE_KERNEL:
        params = checked(driver.cuGraphKernelNodeGetParams(node))
        grid = [int(getattr(params, f"{what}Dim{axis}")) for what in ("grid", "block") for axis in "XYZ"]
        does = int(params.func), int(params.kern), *grid, int(params.sharedMemBytes)
        return NodeImage("kernel", does, tuple(_kernel_fields(params)))
    if kind == kinds.CU_GRAPH_NODE_TYPE_MEMCPY:
        params = checked(driver.cuGraphMemcpyNodeGetParams(node))
        data = ctypes.string_at(int(params.getPtr()), _MEMCPY_TARGET + 8)
        size = int(params.WidthInBytes), int(params.Height), int(params.Depth)
        ends = (data[_MEMCPY_SOURCE : _MEMCPY_SOURCE + 8], data[_MEMCPY_TARGET : _MEMCPY_TARGET + 8])
        return NodeImage("memcpy", size, tuple((0, each) for each in ends))
    if kind == kinds.CU_GRAPH_NODE_TYPE_MEMSET:
        params = checked(driver.cuGraphMemsetNodeGetParams(node))
        does = int(params.value), int(params.elementSize), int(params.width), int(params.height)
        return NodeImage("memset", does, ((0, int(params.dst).to_bytes(8, "little")),))
    return NodeImage("empty" if kind == kinds.CU_GRAPH_NODE_TYPE_EMPTY else "other", ())


def _kernel_fields(params: Any) -> list[tuple[int, bytes]]:
    layout = _layout(params)
    if params.kernelParams:
        pointers = (ctypes.c_void_p * max(1, len(layout))).from_address(int(params.kernelParams))
        return [(begin, ctypes.string_at(pointers[index] or 0, size)) for index, (begin, size) in enumerate(layout)]
    if not params.extra:
        return []
    packed = (ctypes.c_void_p * 5).from_address(int(params.extra))
    buffer = next((packed[index + 1] or 0 for index in (0, 2) if packed[index] == _BUFFER_POINTER), 0)
    if not buffer or not layout:
        raise NotPatchable("a kernel does not say where its parameters are")
    return [(begin, ctypes.string_at(buffer + begin, size)) for begin, size in layout]


def _layout(params: Any) -> list[tuple[int, int]]:
    """Give where each parameter of a kernel begins, and its size."""
    driver = bindings()
    ask = driver.cuFuncGetParamInfo if int(params.func) else driver.cuKernelGetParamInfo
    of = params.func if int(params.func) else params.kern
    found: list[tuple[int, int]] = []
    while True:
        error, *where = ask(of, len(found))
        if int(error) != 0:
            return found
        found.append((int(where[0]), int(where[1])))


class Pointers:
    """The pointers to inputs in an executable graph, in copies of the parameters of their nodes."""

    def __init__(self, executable: Executable, words: Words, inputs: int) -> None:
        self._executable, self._kept = executable, list[Any]()
        self._context = current_context()
        nodes = nodes_of(executable.graph.raw_cuda_graph())
        changed = dict.fromkeys([*(each.node for each in words.sites), *(each.node for each in words.stale)])
        copies = {number: self._copy(nodes[number]) for number in changed}
        self._cells: list[list[tuple[ctypes.c_uint64, int]]] = [[] for _ in range(inputs)]
        self._pushes: list[dict[Callable[[], int], None]] = [{} for _ in range(inputs)]  # each once, however many inputs move
        for stale in words.stale:
            fields, push = copies[stale.node]
            ctypes.memmove(fields[stale.field] + stale.offset, stale.other, len(stale.other))
            _check(push())
        for site in words.sites:
            fields, push = copies[site.node]
            self._cells[site.tensor].append((ctypes.c_uint64.from_address(fields[site.field] + site.offset), site.delta))
            self._pushes[site.tensor][push] = None
        self._now: list[int | None] = [None] * inputs
        self._copies: dict[int, torch.Tensor] = {}  # of inputs that lie elsewhere than kernels were chosen for
        executable.on_change.append(partial(self._now.__setitem__, slice(None), self._now.copy()))
        self.set = self._setting_one() if inputs == 1 else self._set_all

    def _setting_one(self) -> Callable[[Sequence[torch.Tensor]], None]:
        """Give what has the next replays read a tensor, in as few steps as that takes."""
        now, context, set_all = self._now, self._context, self._set_all
        cells, pushes = tuple(self._cells[0]), tuple(self._pushes[0])

        def set_one(tensors: Sequence[torch.Tensor]) -> None:
            address = tensors[0].data_ptr()
            if address == now[0]:
                return
            if address % _ALIGNED or not context.is_there:
                set_all(tensors)
                return
            now[0] = address
            for cell, delta in cells:
                cell.value = address + delta
            for push in pushes:
                if error := push():
                    _check(error)

        return set_one

    def _set_all(self, tensors: Sequence[torch.Tensor]) -> None:
        """Have the next replays read these tensors."""
        addresses, now = [each.data_ptr() for each in tensors], self._now
        if addresses == now:
            return
        if not self._context.is_there:
            self._context.enter()
        pushes: dict[Callable[[], int], None] = {}
        for number, address in enumerate(addresses):
            if address != now[number]:
                now[number] = address
                if address % _ALIGNED:
                    self._copies[number] = copy = tensors[number].clone()
                    address, now[number] = copy.data_ptr(), None  # copied in each call
                for cell, delta in self._cells[number]:
                    cell.value = address + delta
                pushes |= self._pushes[number]
        for push in pushes:
            _check(push())

    def _copy(self, node: Any) -> tuple[list[int], Callable[[], int]]:
        """Copy the parameters of a node; gives where the copies of its fields are, and what sets them."""
        driver, library, executable = bindings(), ctypes.PyDLL("libcuda.so.1"), self._executable.pointer
        if checked(driver.cuGraphNodeGetType(node)) == driver.CUgraphNodeType.CU_GRAPH_NODE_TYPE_MEMCPY:
            params = checked(driver.cuGraphMemcpyNodeGetParams(node))
            self._kept.append(params)
            where = int(params.getPtr())
            set_memcpy = library.cuGraphExecMemcpyNodeSetParams
            return [where + _MEMCPY_SOURCE, where + _MEMCPY_TARGET], _calling(
                set_memcpy, executable, node, where, self._context.handle
            )
        params = checked(driver.cuGraphKernelNodeGetParams(node))
        fields = [self._aligned(data) for _, data in _kernel_fields(params)]
        array = (ctypes.c_void_p * max(1, len(fields)))(*fields)
        params.kernelParams, params.extra = ctypes.addressof(array), 0
        self._kept += [params, array]
        return fields, _calling(library.cuGraphExecKernelNodeSetParams_v2, executable, node, params.getPtr())

    def _aligned(self, data: bytes) -> int:
        """Copy bytes to memory that is aligned as any parameter may want it; gives where."""
        memory = ctypes.create_string_buffer(len(data) + 128)
        self._kept.append(memory)
        start = -(-ctypes.addressof(memory) // 128) * 128
        ctypes.memmove(start, data, len(data))
        return start


def _check(error: int) -> None:
    if error:
        raise CaptureFailed(f"CUDA did not take the parameters of a node: error {error}")


def _calling(function: Any, executable: ctypes.c_void_p, *arguments: Any) -> Callable[[], int]:
    function.argtypes, function.restype = [ctypes.c_void_p] * (1 + len(arguments)), ctypes.c_int
    return partial(function, executable, *(ctypes.c_void_p(int(each)) for each in arguments))
