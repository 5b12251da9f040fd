"""`allocator_like` gives tensors as `torch.empty_like` does for dense tensors."""

from __future__ import annotations

import pytest
import torch

from dynx._torch.ops.allocation import allocator_like

DTYPES = (torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.complex64, torch.float8_e4m3fn, torch.uint16)
TENSORS = {
    "contiguous": lambda dtype: torch.empty(3, 4, dtype=dtype),
    "transposed": lambda dtype: torch.empty(3, 4, dtype=dtype).t(),
    "channels_last": lambda dtype: torch.empty(2, 3, 4, 5, dtype=dtype).to(memory_format=torch.channels_last),
    "of a larger one": lambda dtype: torch.empty(7, 4, dtype=dtype)[2:],
    "a number": lambda dtype: torch.empty((), dtype=dtype),
}


@pytest.mark.parametrize("device", ["cpu", "meta", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("name", TENSORS)
def test_layouts_are_those_of_empty_like(name, device):
    for dtype in DTYPES:
        tensor = TENSORS[name](dtype).to(device)
        expected, allocated = torch.empty_like(tensor), allocator_like(tensor)()
        for attribute in ("size", "stride", "storage_offset", "is_contiguous"):
            assert getattr(allocated, attribute)() == getattr(expected, attribute)()
        assert (allocated.dtype, allocated.device) == (expected.dtype, expected.device)
        assert allocated.untyped_storage().nbytes() == expected.untyped_storage().nbytes()


def test_each_call_allocates():
    allocate = allocator_like(torch.empty(3))
    first, second = allocate(), allocate()
    assert first.data_ptr() != second.data_ptr()


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_the_class_is_kept(device):
    class Subclass(torch.Tensor):
        pass

    for tensor in (torch.empty(3, device=device).as_subclass(Subclass), torch.nn.Parameter(torch.empty(3, device=device))):
        assert type(allocator_like(tensor)()) is type(torch.empty_like(tensor))


@pytest.mark.parametrize("is_enabled", [False, True])
def test_tensors_are_inference_tensors_only_in_inference_mode(is_enabled):
    allocate = allocator_like(torch.empty(3))
    with torch.inference_mode(is_enabled):
        assert allocate().is_inference() is is_enabled


@pytest.mark.gpu(devices=2)
def test_the_device_is_that_of_the_tensor_while_another_one_is_current():
    allocate = allocator_like(torch.empty(3, device="cuda:0"))
    with torch.cuda.device(1):
        assert allocate().device == torch.device("cuda", 0)
