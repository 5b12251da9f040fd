"""The CUDA driver API for captured graphs: set the addresses of memcpy nodes, launch, and list nodes.

`cuGraphExecMemcpyNodeSetParams` changes the executable graph, which affects later launches only, not those in progress.
Functions that run in each replay are called through ctypes, since a call through cuda-bindings takes a microsecond; structures
such as node parameters are those of cuda-bindings.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch

from dynx._torch.ops.cuda_graphs import current_device, current_stream_of
from dynx.cudagraphs._runtime.interface import Copy
from dynx.cudagraphs._runtime.memcpy import Addresses, find_copies
from dynx.errors import CaptureFailed

SetAddresses = Callable[[Sequence[torch.Tensor]], None]

_pointer = ctypes.c_void_p  # arguments are converted once: ctypes would convert a Python integer in each call
MEMCPY_SOURCE, MEMCPY_TARGET = 48, 136  # offsets of srcDevice and dstDevice in CUDA_MEMCPY3D


def is_available() -> bool:
    """Return whether cuda-bindings is installed (`pip install dynx[cuda]`)."""
    try:
        from cuda.bindings import driver  # noqa: F401
    except ImportError:
        return False
    return True


class Context(threading.local):
    """A CUDA context (a CUcontext). A thread without a current context must `enter` it, since driver calls would crash."""

    is_entered = False  # by this thread

    def __init__(self, handle: int) -> None:  # threading.local calls it once per thread
        self.handle = handle

    def enter(self) -> None:
        """Make the context current, if the thread has no current context."""
        self.is_entered = True
        if not int(check_result(import_driver().cuCtxGetCurrent())):  # the context of another device stays current
            check_result(import_driver().cuCtxSetCurrent(self.handle))


def current_context() -> Context:
    """Return the current CUDA context of this thread."""
    return Context(int(check_result(import_driver().cuCtxGetCurrent())))


class ExecutableGraph:
    """An instantiated graph (a cudaGraphExec_t), which is created again if the user changes the raw graph (a cudaGraph_t)."""

    def __init__(self, graph: torch.cuda.CUDAGraph) -> None:
        self.graph, self.pointer = graph, _pointer(graph.raw_cuda_graph_exec())
        # called by `instantiate`, since a new executable graph has the captured addresses again
        self.on_instantiate: list[Callable[[], None]] = []

    def instantiate(self) -> None:
        """Instantiate the raw graph again, which resets the addresses that were set; call the functions in `on_instantiate`."""
        self.pointer.value = None  # torch destroys the previous executable graph, even if instantiation fails
        self.graph.instantiate()
        self.pointer.value = self.graph.raw_cuda_graph_exec()
        for callback in self.on_instantiate:
            callback()


def invalidation_check(stream: torch.cuda.Stream) -> Callable[[], bool]:
    """Return a predicate that is true if the capture on a stream is invalidated; CUDA raises only when the capture ends."""
    is_capturing = ctypes.PyDLL("libcuda.so.1").cuStreamIsCapturing
    handle, status = _pointer(stream.cuda_stream), ctypes.c_int()
    result = ctypes.byref(status)
    return lambda: is_capturing(handle, result) != 0 or status.value == _INVALIDATED


_INVALIDATED = 2  # CU_STREAM_CAPTURE_STATUS_INVALIDATED


def make_launcher(executable: ExecutableGraph, device: int) -> Callable[[], None]:
    """Return a function that launches a graph on the current stream, in two thirds of the time of `CUDAGraph.replay`."""
    launch = ctypes.PyDLL("libcuda.so.1").cuGraphLaunch
    launch.argtypes, launch.restype = [ctypes.c_void_p] * 2, ctypes.c_int
    pointer, current_stream = executable.pointer, current_stream_of(device)
    context = current_context()

    def replay() -> None:
        if not context.is_entered:
            context.enter()
        if error := launch(pointer, current_stream()):
            raise CaptureFailed(f"cuGraphLaunch failed with CUDA error {error}")

    def replay_beside_other_devices() -> None:
        if not current_stream() and get_device() != device:  # for the driver, 0 is the default stream of the current device
            with torch.cuda.device(device):
                replay()
        else:
            replay()

    get_device = current_device()
    return replay if torch.cuda.device_count() == 1 else replay_beside_other_devices


def make_address_setter(executable: ExecutableGraph, copies: Sequence[Copy], offset: int) -> SetAddresses:
    """Return a function that sets the address at `offset` (MEMCPY_SOURCE or MEMCPY_TARGET) in each memcpy node of `copies`."""
    found = find_copies(_memcpy_nodes(executable.graph.raw_cuda_graph()), copies) if copies else []
    setters = [_address_setter(executable, index, node, params, offset) for index, (node, params) in enumerate(found)]
    if len(setters) == 1:
        return setters[0]

    def set_addresses(tensors: Sequence[torch.Tensor]) -> None:
        for set_address in setters:
            set_address(tensors)

    return set_addresses


def _address_setter(executable: ExecutableGraph, index: int, node: Any, params: Any, offset: int) -> SetAddresses:
    """Return a function that takes tensors, and writes the address of tensor `index` to a memcpy node, at `offset`."""
    context = current_context()
    set_params = memcpy_setter(executable, node, params, context)
    cell = ctypes.c_uint64.from_address(int(params.getPtr()) + offset)
    known: int | None = cell.value

    def set_address(tensors: Sequence[torch.Tensor]) -> None:
        nonlocal known
        address = tensors[index].data_ptr()
        if address != known:
            cell.value, known = address, None  # until the driver has accepted it
            if not context.is_entered:
                context.enter()
            if error := set_params():
                raise CaptureFailed(f"cuGraphExecMemcpyNodeSetParams failed with CUDA error {error}")
            known = address

    def forget() -> None:
        nonlocal known
        known = None

    executable.on_instantiate.append(forget)
    set_address.kept_alive = params  # type: ignore[attr-defined]  # the driver's structure: the cell is in its memory
    return set_address


def memcpy_setter(executable: ExecutableGraph, node: Any, params: Any, context: Context) -> Callable[[], int]:
    """Return a function that copies `params` to a memcpy node of the executable graph, and returns the driver's error code."""
    return bound("cuGraphExecMemcpyNodeSetParams", executable, node, params.getPtr(), context.handle)


def bound(function: str, executable: ExecutableGraph, *arguments: Any) -> Callable[[], int]:
    """Bind a driver function to its arguments; each call reads the executable graph's pointer, which instantiation changes."""
    call = getattr(ctypes.PyDLL("libcuda.so.1"), function)
    call.argtypes, call.restype = [ctypes.c_void_p] * (1 + len(arguments)), ctypes.c_int
    return partial(call, executable.pointer, *(_pointer(int(argument)) for argument in arguments))


def graph_nodes(raw_graph: int) -> list[Any]:
    """Return the nodes of a raw graph in the order in which they were captured."""
    driver = import_driver()
    graph = driver.CUgraph(raw_graph)
    _, count = check_result(driver.cuGraphGetNodes(graph, 0))
    nodes, count = check_result(driver.cuGraphGetNodes(graph, count))
    return list(nodes[:count])


def _memcpy_nodes(raw_graph: int) -> dict[Addresses, tuple[Any, Any]]:
    """Return the memcpy nodes of a raw graph and their parameters, by target and source address."""
    driver = import_driver()
    memcpy = driver.CUgraphNodeType.CU_GRAPH_NODE_TYPE_MEMCPY
    nodes = [node for node in graph_nodes(raw_graph) if check_result(driver.cuGraphNodeGetType(node)) == memcpy]
    with_params = [(node, check_result(driver.cuGraphMemcpyNodeGetParams(node))) for node in nodes]
    return {(int(params.dstDevice), int(params.srcDevice)): (node, params) for node, params in with_params}


def check_result(result: tuple[Any, ...]) -> Any:
    """Return the values of a call of cuda-bindings without the error code. Raises CaptureFailed if it is not CUDA_SUCCESS."""
    error, *values = result
    if int(error) != 0:
        raise CaptureFailed(f"a call of the CUDA driver failed with {error}")
    return values[0] if len(values) == 1 else values


def import_driver() -> Any:
    """Import the driver API of cuda-bindings, which is an optional dependency."""
    from cuda.bindings import driver

    return driver
