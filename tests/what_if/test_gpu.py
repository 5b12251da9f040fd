"""What-ifs on a GPU: right predictions, and neither memory nor random numbers of the program are used up."""

from __future__ import annotations

import gc
import math

import pytest
import torch

from dynx.session import Watch

pytestmark = pytest.mark.gpu


def noisy(x, n):
    return (x * n + torch.rand_like(x)).sin()


@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_sizes_and_random_numbers_on_a_gpu(backend):
    def run(watch):
        torch._dynamo.reset()
        torch.manual_seed(0)
        compiled = torch.compile(noisy, backend=backend, dynamic=False)
        with watch:
            return [compiled(torch.ones(size, 8, device="cuda"), 2) for size in (4, 5, 6, 7)]

    without = run(Watch())
    watch = Watch(what_if=math.inf)
    with_them = run(watch)
    assert all(torch.equal(*pair) for pair in zip(without, with_them, strict=True))
    results = {(each.fix.code == "dynamic=None", each.outcome, each.calls, each.compiles) for each in watch.what_ifs}
    assert results == {(False, "removes", 4, 1), (True, "fewer", 4, 2)}
    assert not watch.troubles


def test_no_memory_stays_allocated_and_large_tensors_are_not_allocated_again():
    """A tensor of a call that is gone gets a stand-in of equal metadata, but not if it would take much memory of the GPU."""
    compiled = torch.compile(lambda x: x + 1, backend="eager", dynamic=False)
    gc.collect()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    with Watch(what_if=math.inf) as watch:
        for rows in (40_000, 50_000):  # 164 and 205 MB
            compiled(torch.ones(rows, 1024, device="cuda"))
    gc.collect()
    assert torch.cuda.memory_allocated() == before
    assert torch.cuda.max_memory_allocated() - before < 2.5 * 50_000 * 1024 * 4  # the argument and the result
    assert watch.what_ifs


def test_a_model_on_two_streams():
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2)).cuda()
    compiled = torch.compile(model, backend="inductor", dynamic=False)
    side = torch.cuda.Stream()
    with Watch(what_if=math.inf) as watch:
        for size in (3, 4, 5):
            x = torch.randn(size, 8, device="cuda")
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                found = compiled(x)
            torch.cuda.current_stream().wait_stream(side)
            torch.testing.assert_close(found, model(x))
    assert any(each.outcome == "removes" for each in watch.what_ifs)
