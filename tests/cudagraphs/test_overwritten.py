"""Outputs that are valid until the next call: whoever uses one after it is told of both calls."""

from __future__ import annotations

import gc
import re
import weakref

import pytest
import torch
from cudagraphs_runtimes import RUNTIMES

from dynx import cudagraphs
from dynx._torch.ops.storage_guard import storage_guard

pytestmark = pytest.mark.skipif(storage_guard() is None, reason="this build of torch cannot mark memory as overwritten")


@pytest.fixture
def run(device):
    config = cudagraphs.Config(runtime=RUNTIMES[device], outputs="alias")
    run = torch.compile(lambda x: (x * 2, x + 1), backend=cudagraphs.backend(config))
    run(torch.ones(3, device=device))
    return run


def here(offset):
    return f"{__file__}:{offset}"


def test_using_one_afterwards_names_both_calls(run, device):
    x = torch.ones(3, device=device)
    doubled, _ = run(x)
    torch.testing.assert_close(doubled, x * 2)
    run(x + 1)
    first = test_using_one_afterwards_names_both_calls.__code__.co_firstlineno + 2
    expected = f"output of the call at {here(first)}, in test_using.* overwritten by the call at {here(first + 2)}, in"
    for use in (lambda: doubled + 1, doubled.clone, lambda: doubled.sum().item(), lambda: run(doubled)):
        with pytest.raises(RuntimeError, match=f"{expected}(.|\n)*clone it before, or use outputs='clone'"):
            use()


def test_a_view_of_one_too(run, device):
    view = run(torch.ones(3, device=device))[0][1:]
    run(torch.ones(3, device=device))
    with pytest.raises(RuntimeError, match="overwritten by the call"):
        view.sum()
    assert view.shape == (2,), "what is not in the memory is still there"


def test_each_call_may_use_the_outputs_of_the_one_before(run, device):
    x = torch.ones(3, device=device)
    for _ in range(3):
        x, other = run(x)
        assert other.sum().item() == x.sum().item() / 2 + 3
    assert x.tolist() == [8.0] * 3


def test_outputs_that_are_not_used_any_more_cost_nothing(run, device):
    for _ in range(3):
        run(torch.ones(3, device=device))
    doubled, plus = run(torch.ones(3, device=device))
    assert doubled.tolist() == plus.tolist() == [2.0] * 3


def test_what_the_caller_has_ends_with_it(device):
    config = cudagraphs.Config(runtime=RUNTIMES[device], outputs="alias")
    run = torch.compile(torch.sin, backend=cudagraphs.backend(config))
    x = torch.ones(3, device=device)

    def call():
        of_the_caller = torch.ones(3)
        run(x)
        return weakref.ref(of_the_caller)

    run(x)
    gc.disable()
    try:
        assert [call()() for _ in range(3)] == [None] * 3
    finally:
        gc.enable()


def test_another_graph_overwrites_nothing(device):
    config = cudagraphs.Config(runtime=RUNTIMES[device], outputs="alias")
    one, other = (torch.compile(fn, backend=cudagraphs.backend(config)) for fn in (torch.sin, torch.cos))
    x = torch.ones(3, device=device)
    for _ in range(3):
        first, second = one(x), other(x)
        torch.testing.assert_close((first, second), (x.sin(), x.cos()))


def test_outputs_of_fast_paths_and_graphed_modules(device):
    model, x = torch.nn.Linear(3, 3).to(device), torch.ones(2, 3, device=device)
    config = cudagraphs.Config(runtime=RUNTIMES[device], outputs="alias")
    for run in (cudagraphs.fast_path(model, x, config=config), cudagraphs.graphed(torch.nn.Tanh(), (x,), config=config)):
        before = run(x)
        run(x)
        with pytest.raises(RuntimeError, match=re.escape(f"call at {__file__}")):
            before.sum()


def test_memory_outlives_the_recording(device):
    config = cudagraphs.Config(runtime=RUNTIMES[device], outputs="alias")
    run = torch.compile(lambda x: x * 2, backend=cudagraphs.backend(config))
    for _ in range(2):
        result = run(torch.ones(3, device=device))
    del run
    torch._dynamo.reset()
    torch.testing.assert_close(result, torch.full((3,), 2.0, device=device))


@pytest.mark.parametrize("dtype", [torch.bool, torch.bfloat16, torch.float8_e4m3fn, torch.complex64, torch.int8, torch.uint16])
def test_other_dtypes(device, dtype):
    config = cudagraphs.Config(runtime=RUNTIMES[device], outputs="alias")
    run = torch.compile(lambda x: x.clone(), backend=cudagraphs.backend(config))
    x = torch.tensor([1, 0, 1], device=device).to(dtype)
    for _ in range(3):
        result = run(x)
        assert result.dtype == dtype
        assert torch.equal(result.view(torch.uint8), x.view(torch.uint8))
