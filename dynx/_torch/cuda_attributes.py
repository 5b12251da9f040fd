"""Private attributes of torch that dynx uses only with a GPU; `capabilities` adds them to its table."""

from __future__ import annotations

from collections.abc import Mapping

# attributes that builds without CUDA may lack: not part of the snapshots, which do not depend on the build
CUDA_ATTRIBUTES: Mapping[str, tuple[str, str]] = {
    "replay": ("torch._C:_CUDAGraph.replay", "CUDA graphs on a GPU: replays without the wrapper in Python"),
    "raw_stream": ("torch._C:_cuda_getCurrentRawStream", "CUDA graphs on a GPU: the current stream"),
    "current_device": ("torch._C:_cuda_getDevice", "CUDA graphs on a GPU: the current device"),
    "capture_state": ("torch._C:_cuda_isCurrentStreamCapturing", "CUDA graphs on a GPU: check for an active capture"),
    "pool_begin": ("torch._C:_cuda_beginAllocateCurrentThreadToPool", "CUDA graphs on a GPU: memory pools"),
    "pool_end": ("torch._C:_cuda_endAllocateToPool", "CUDA graphs on a GPU: memory pools"),
    "pool_release": ("torch._C:_cuda_releasePool", "CUDA graphs on a GPU: memory pools"),
    "memory_segments": ("torch._C:_cuda_memorySnapshot", "CUDA graphs on a GPU: memory pools, and pointers among parameters"),
    "clear_workspaces": ("torch._C:_cuda_clearCublasWorkspaces", "CUDA graphs on a GPU: cuBLAS workspaces"),
    "addresses_equal": ("torch._C:_tensors_data_ptrs_at_indices_equal", "CUDA graphs on a GPU: comparison of addresses"),
    "forbid_access": ("torch._C:_set_storage_data_ptr_access_error_msg", "CUDA graphs on a GPU: overwritten outputs"),
    "storage_at": ("torch._C:_construct_storage_from_data_pointer", "CUDA graphs on a GPU: pointers that a graph stores"),
    "storage_use_count": ("torch._C:_storage_Use_Count", "CUDA graphs on a GPU: overwritten outputs"),
}
