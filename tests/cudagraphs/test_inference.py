"""Compiled functions give what eager gives, call after call."""

from __future__ import annotations

import contextlib
import math
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from cudagraphs_runtimes import NO_GPU, RUNTIMES

from dynx import cudagraphs
from dynx.cudagraphs._runtime.memcpy import CopiesNotFound
from dynx.cudagraphs._runtime.select import runtime_of
from dynx.errors import CaptureError, CaptureFailed, DynxWarning


def same(one, other):
    torch.testing.assert_close(one, other, equal_nan=False)


def mlp(device, width=8, depth=3):
    torch.manual_seed(0)
    layers = [each for _ in range(depth) for each in (torch.nn.Linear(width, width), torch.nn.GELU())]
    return torch.nn.Sequential(*layers).to(device)


@pytest.mark.parametrize("outputs", ["clone", "alias", "static"])
def test_each_call_gives_what_its_arguments_make(compiled, device, inputs, outputs):
    model = mlp(device)
    run = compiled(model, outputs=outputs)
    with torch.no_grad():
        for step in range(5):
            x = torch.randn(4, 8, device=device) + step
            same(run(x), model(x))
    stats = cudagraphs.stats()
    copies = 0 if inputs == "patch" else 4
    assert (stats.recordings, stats.replays, stats.uncaptured, stats.copies) == (1, 4, 1, copies)
    assert stats.bytes_copied == copies * x.nbytes


def test_outputs_are_yours_to_keep(compiled, device):
    run = compiled(lambda x: x * 2)
    kept = [run(torch.full((3,), float(step), device=device)) for step in range(5)]
    assert [each[0].item() for each in kept] == [0.0, 2.0, 4.0, 6.0, 8.0]


def test_alias_outputs_are_those_of_the_last_call(compiled, device):
    run = compiled(lambda x: x * 2, outputs="alias")
    places = set()
    for step in range(5):
        result = run(torch.full((3,), float(step), device=device))
        assert result[0].item() == 2.0 * step
        places |= {result.data_ptr()} if step else set()
    assert len(places) == 1


def test_parameters_are_read_where_they_lie(compiled, device):
    """backend="cudagraphs" copies every parameter on every call; here a change in place is seen without one."""
    model = torch.nn.Linear(4, 4, device=device)
    run = compiled(model)
    x = torch.ones(2, 4, device=device)
    with torch.no_grad():
        for _ in range(4):
            same(run(x), model(x))
            model.weight.add_(1)
    assert cudagraphs.stats().recordings == 1


def test_parameters_that_move_are_found(compiled, device):
    model = torch.nn.Linear(4, 4, device=device)
    run = compiled(model)
    x = torch.ones(2, 4, device=device)
    with torch.no_grad():
        for step in range(5):
            same(run(x), model(x))
            model.weight.data = torch.full_like(model.weight, float(step))


def test_what_a_function_changes_is_changed(compiled, device):
    def forward(x, counter):
        counter.add_(1)
        x.mul_(2)
        return x + counter

    run = compiled(forward)
    counter, expected = torch.zeros(3, device=device), torch.zeros(3, device=device)
    for step in range(4):
        x, y = torch.full((3,), float(step), device=device), torch.full((3,), float(step), device=device)
        same(run(x, counter), forward(y, expected))
        same((x, counter), (y, expected))


def test_running_statistics_are_kept(compiled, device):
    torch.manual_seed(0)
    model, other = torch.nn.BatchNorm1d(4).to(device), torch.nn.BatchNorm1d(4).to(device)
    run = compiled(model)
    with torch.no_grad():
        for step in range(5):
            x = torch.randn(8, 4, device=device) + step
            same(run(x), other(x))
    same(dict(model.named_buffers()), dict(other.named_buffers()))


LAYOUTS = {
    "expanded": lambda x: x[:, :1].expand(-1, 4),
    "transposed": lambda x: x.t(),
    "with gaps": lambda x: x[:, ::2],
    "overlapping": lambda x: x.as_strided((3, 3), (1, 1)),
    "empty": lambda x: x[:0],
}


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_inputs_keep_their_layout(compiled, device, layout):
    def forward(x):
        return x * 2, x

    run = compiled(forward)
    for step in range(4):
        x = layout(torch.randn(4, 4, device=device) + step)
        same(run(x), forward(x))
        assert run(x)[0].stride() == forward(x)[0].stride()


def test_inference_mode_and_outside_of_it(compiled, device):
    model = mlp(device)
    run = compiled(model)
    x = torch.randn(4, 8, device=device)
    for mode in (torch.inference_mode, torch.no_grad, torch.inference_mode, torch.no_grad):
        for _ in range(3):
            with mode():
                same(run(x), model(x))


def test_threads_do_not_mix_their_inputs(compiled, device):
    run = compiled(lambda x: (x * 2).relu())
    for _ in range(2):
        run(torch.ones(64, device=device))
    with ThreadPoolExecutor(4) as pool:
        calls = [pool.submit(run, torch.full((64,), float(step), device=device)) for step in range(200)]
        assert [call.result()[0].item() for call in calls] == [2.0 * step for step in range(200)]


@torch.library.custom_op("dynx_tests::again", mutates_args=())
def again(x: torch.Tensor, times: int) -> torch.Tensor:
    return _again[-1](x, times - 1) if times else x.clone()


_again = []


@again.register_fake
def _(x, times):
    return torch.empty_like(x)


def test_an_operator_that_calls_the_compiled_function(compiled, device):
    _again.append(compiled(lambda x, times: again(x, times) * 2, dynamic=True))
    for _ in range(3):
        assert _again[-1](torch.ones(2, device=device), 3).tolist() == [16.0] * 2


def test_numbers_that_change_have_recordings_of_their_own(compiled, device):
    run = compiled(lambda x, n: x * n, dynamic=True)
    for n in (2, 3, 2, 3, 5, 2):
        same(run(torch.ones(3, device=device), n), torch.full((3,), float(n), device=device))


def test_sizes_that_change_have_recordings_of_their_own(compiled, device):
    run = compiled(lambda x: x.sin() + 1, dynamic=True)
    for size in (3, 4, 3, 4, 7, 3):
        x = torch.randn(size, device=device)
        same(run(x), x.sin() + 1)


def test_more_recordings_than_allowed_are_told(compiled, device):
    run = compiled(lambda x: x + 1, dynamic=True, max_recordings=2)
    x = [torch.randn(size, device=device) for size in range(3, 7)]
    same([run(x[0]) for _ in range(2)], [x[0] + 1] * 2)
    with pytest.warns(DynxWarning, match="needs more than 2 recordings"):
        same([run(each) for each in x], [each + 1 for each in x])


def test_the_oldest_recording_is_forgotten(compiled, device):
    run = compiled(lambda x: x + 1, dynamic=True, max_recordings=2, on_limit="lru")
    x = [torch.randn(size, device=device) for size in range(3, 6)]
    for number in (0, 0, 1, 0, 2, 0, 1):
        same(run(x[number]), x[number] + 1)
    assert cudagraphs.stats().recordings == 4, "the first, which was used in between, was kept"


def test_others_are_recorded_where_a_forgotten_one_lay(compiled, device):
    run = compiled(lambda x: x + 1, dynamic=True, max_recordings=1, on_limit="lru", outputs="static")
    for size in (3, 3, 4, 3, 4):
        x = torch.randn(size, device=device)
        result = run(x)  # is held while the next is recorded
        same(result, x + 1)
    assert cudagraphs.stats().recordings == 4


def test_more_recordings_can_be_an_error(compiled, device):
    run = compiled(lambda x: x + 1, dynamic=True, max_recordings=1, on_limit="error")
    for size in (3, 3):
        run(torch.ones(size, device=device))
    with pytest.raises(CaptureError, match=r"needs more than 1 recording: x.size\(\)\[0\]"):
        run(torch.ones(4, device=device))


def runs_uncaptured(run, eager, device):
    for step in range(4):
        x = torch.full((3,), float(step), device=device)
        expected = pytest.warns(DynxWarning, match="the inference graph runs uncaptured")
        with expected if step == 1 else contextlib.nullcontext():
            same(run(x), eager(x))
    stats = cudagraphs.stats()
    return (stats.replays, stats.uncaptured, len(stats.skips)) == (0, 4, 1)


@pytest.mark.uncaptured
def test_what_is_refused_is_run_as_it_is(compiled, device, monkeypatch):
    def refuse(*args, **how):
        raise CaptureFailed("not today")

    monkeypatch.setattr(type(runtime_of(cudagraphs.Config(runtime=RUNTIMES[device]))), "capture", refuse)
    assert runs_uncaptured(compiled(torch.sin), torch.sin, device)
    assert cudagraphs.stats().skips[0].reason == "not today"


@pytest.mark.uncaptured
@pytest.mark.parametrize("how", ["auto", "memcpy_node"])
def test_inputs_are_copied_by_hand_where_the_graph_cannot(device, monkeypatch, how):
    """Such as copies so small that CUDA makes kernels of them."""
    config = cudagraphs.Config(runtime=RUNTIMES[device], inputs=how)
    runtime = type(runtime_of(config))
    capture = runtime.capture

    def capture_without(runtime, function, copies, results, pool):
        if copies:
            raise CopiesNotFound("inputs 0 were not captured as copies")
        return capture(runtime, function, copies, results, pool)

    monkeypatch.setattr(runtime, "capture", capture_without)
    run = torch.compile(torch.sin, backend=cudagraphs.backend(config))
    if how == "memcpy_node":
        assert runs_uncaptured(run, torch.sin, device), "that is what was asked for"
    else:
        for step in range(4):
            x = torch.full((3,), float(step), device=device)
            same(run(x), torch.sin(x))
        assert cudagraphs.stats().replays == 3


@torch.library.custom_op("dynx_tests::reads", mutates_args=())
def reads(x: torch.Tensor) -> torch.Tensor:
    return x + x[0].item()


@reads.register_fake
def _(x):
    return torch.empty_like(x)


@pytest.mark.gpu
@NO_GPU
@pytest.mark.parametrize("device", ["cuda"], indirect=True)
def test_an_operator_that_reads_a_value_is_found_out(compiled, device):
    """The graph looks harmless: what the operator does shows when it is captured."""
    assert runs_uncaptured(compiled(lambda x: reads(x) + 1), lambda x: x + x[0] + 1, device)
    assert "CUDA did not capture it: " in cudagraphs.stats().skips[0].reason
    torch.rand(3, device=device)  # torch alone: Offset increment outside graph capture encountered unexpectedly
    run = compiled(lambda x: torch.nn.functional.dropout(x + 1))
    for _ in range(3):
        assert run(torch.ones(3, device=device)).shape == (3,)
    assert cudagraphs.stats().replays == 2


@pytest.mark.uncaptured
def test_what_reads_a_value_is_run_as_it_is(compiled, device):
    run = compiled(lambda x: x[x > 0] * 2)
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True), pytest.warns(DynxWarning) as told:
        same(run(torch.ones(3, device=device)), torch.full((3,), 2.0, device=device))
    assert "gives a size that depends on values" in str(told[0].message)
    assert f"{__file__}:" in str(told[0].message)


def test_where_there_is_no_cuda_it_says_so(monkeypatch):
    monkeypatch.setattr("dynx.cudagraphs._runtime.select.has_cuda", lambda: False)
    run = torch.compile(lambda x: x + 1, backend=cudagraphs.backend())
    with pytest.warns(DynxWarning, match="no CUDA device"):
        run(torch.ones(3))


def test_numbers_that_are_equal_and_not_the_same(compiled, device, monkeypatch):
    monkeypatch.setattr(torch._dynamo.config, "capture_scalar_outputs", True)

    def inverse(x):
        return (torch.full((3,), x[0].item(), device=x.device).reciprocal() * 2).exp() * 1

    run = compiled(inverse)
    for value in (1.0, 1.0, 0.0, 0.0, -0.0, -0.0, *[math.nan] * 6):
        x = torch.full((1,), value, device=device)
        torch.testing.assert_close(run(x), inverse(x), equal_nan=True, rtol=0, atol=0)
    assert cudagraphs.stats().recordings <= 5, "one for NaN"


@pytest.mark.uncaptured
def test_an_error_while_room_is_made(compiled, device):
    is_refusing = []

    class Refusing(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
            if is_refusing and operator is torch.ops.aten.mul.Tensor:
                raise ValueError("not now")
            return operator(*args, **(kwargs or {}))

    run = compiled(lambda x: x * 2 + 1, dynamic=True, max_recordings=1, on_limit="lru")
    two, three = torch.ones(2, device=device), torch.ones(3, device=device)
    with Refusing():
        for _ in range(3):
            assert run(two).tolist() == [3.0] * 2
        is_refusing.append(True)
        with pytest.raises(ValueError, match="not now"):
            run(three)
        is_refusing.clear()
        for _ in range(3):
            assert run(two).tolist() == [3.0] * 2
            assert run(three).tolist() == [3.0] * 3


@pytest.mark.parametrize("outputs", ["clone", "alias", "static"])
def test_a_result_is_the_next_argument(compiled, device, outputs):
    def step(a):
        b = a * 2
        return b, b.flip(0) + a

    run = compiled(step, outputs=outputs)
    found = expected = torch.tensor([1.0, 2.0, 3.0], device=device)
    for _ in range(6):
        (found, more), (expected, same) = run(found), step(expected)
        assert more.tolist() == same.tolist()


def test_or_error_raises_on_each_call(compiled, device):
    run = compiled(lambda x: x.sin() + 1, dynamic=True, max_recordings=1, or_error=True)
    for _ in range(3):
        run(torch.ones(2, device=device))
    for _ in range(2):
        with pytest.raises(CaptureError, match="needs more than 1 recording"):
            run(torch.ones(3, device=device))
    assert run(torch.zeros(2, device=device)).tolist() == [1.0, 1.0]


def test_complex_numbers_that_are_conjugated(compiled, device):
    def energy(z):
        return (z * z.conj()).real.sum() + (z * 2j).imag.sum()

    run = compiled(energy)
    for number in range(5):
        x = torch.full((3,), 1 + number * 1j, device=device).requires_grad_()
        run(x.conj() if number % 2 else x).backward()
        y = x.detach().clone().requires_grad_()
        energy(y.conj() if number % 2 else y).backward()
        torch.testing.assert_close(x.grad, y.grad)
