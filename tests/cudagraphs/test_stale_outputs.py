"""With `outputs="alias"`, an output is valid until the next call: a later use raises and names both calls."""

from __future__ import annotations

import gc
import re
import weakref

import pytest
import torch
from support.configs import config_for

from dynx import cudagraphs
from dynx._torch.ops.liveness import storage_guard

if storage_guard() is None:
    pytest.skip("this build of torch cannot mark memory as overwritten", allow_module_level=True)


@pytest.fixture
def run(device):
    config = config_for(device, outputs="alias")
    run = torch.compile(lambda x: (x * 2, x + 1), backend=cudagraphs.backend(config))
    run(torch.ones(3, device=device))
    return run


def line_of(offset):
    return f"{__file__}:{offset}"


def test_use_of_an_overwritten_output_raises_and_names_both_calls(run, device):
    x = torch.ones(3, device=device)
    doubled, _ = run(x)
    torch.testing.assert_close(doubled, x * 2)
    run(x + 1)
    first = test_use_of_an_overwritten_output_raises_and_names_both_calls.__code__.co_firstlineno + 2
    expected = f"output of the call at {line_of(first)}, in test_use_of.* overwritten by the call at {line_of(first + 2)}, in"
    for use in (lambda: doubled + 1, doubled.clone, lambda: doubled.sum().item(), lambda: run(doubled)):
        with pytest.raises(RuntimeError, match=f"{expected}(.|\n)*clone it before that, or use outputs='clone'"):
            use()


def test_use_of_a_view_of_an_overwritten_output_raises(run, device):
    view = run(torch.ones(3, device=device))[0][1:]
    run(torch.ones(3, device=device))
    with pytest.raises(RuntimeError, match="overwritten by the call"):
        view.sum()
    assert view.shape == (2,), "metadata stays readable"


def test_feeding_outputs_back_as_inputs_does_not_raise(run, device):
    x = torch.ones(3, device=device)
    for _ in range(3):
        x, plus = run(x)
        assert plus.sum().item() == x.sum().item() / 2 + 3
    assert x.tolist() == [8.0] * 3


def test_overwritten_outputs_that_are_never_used_do_not_raise(run, device):
    for _ in range(3):
        run(torch.ones(3, device=device))
    doubled, plus = run(torch.ones(3, device=device))
    assert doubled.tolist() == plus.tolist() == [2.0] * 3


def test_tracking_returned_outputs_keeps_no_frame_of_the_caller_alive(device):
    config = config_for(device, outputs="alias")
    run = torch.compile(torch.sin, backend=cudagraphs.backend(config))
    x = torch.ones(3, device=device)

    def call():
        caller_local = torch.ones(3)
        run(x)
        return weakref.ref(caller_local)

    run(x)
    gc.disable()
    try:
        assert [call()() for _ in range(3)] == [None] * 3
    finally:
        gc.enable()


def test_calls_of_another_compiled_function_do_not_invalidate_outputs(device):
    config = config_for(device, outputs="alias")
    sin, cos = (torch.compile(fn, backend=cudagraphs.backend(config)) for fn in (torch.sin, torch.cos))
    x = torch.ones(3, device=device)
    for _ in range(3):
        first, second = sin(x), cos(x)
        torch.testing.assert_close((first, second), (x.sin(), x.cos()))


def test_use_of_overwritten_outputs_of_fast_path_and_graphed_raises(device):
    model, x = torch.nn.Linear(3, 3).to(device), torch.ones(2, 3, device=device)
    config = config_for(device, outputs="alias")
    for run in (cudagraphs.fast_path(model, x, config=config), cudagraphs.graphed(torch.nn.Tanh(), (x,), config=config)):
        before = run(x)
        run(x)
        with pytest.raises(RuntimeError, match=re.escape(f"call at {__file__}")):
            before.sum()


def test_outputs_returned_without_a_copy_stay_valid_after_the_recording_is_freed(device):
    config = config_for(device, outputs="alias")
    run = torch.compile(lambda x: x * 2, backend=cudagraphs.backend(config))
    for _ in range(2):
        result = run(torch.ones(3, device=device))
    del run
    torch._dynamo.reset()
    torch.testing.assert_close(result, torch.full((3,), 2.0, device=device))


@pytest.mark.parametrize("dtype", [torch.bool, torch.bfloat16, torch.float8_e4m3fn, torch.complex64, torch.int8, torch.uint16])
def test_outputs_returned_without_a_copy_keep_dtype_and_values(device, dtype):
    config = config_for(device, outputs="alias")
    run = torch.compile(lambda x: x.clone(), backend=cudagraphs.backend(config))
    x = torch.tensor([1, 0, 1], device=device).to(dtype)
    for _ in range(3):
        result = run(x)
        assert result.dtype == dtype
        assert torch.equal(result.view(torch.uint8), x.view(torch.uint8))
