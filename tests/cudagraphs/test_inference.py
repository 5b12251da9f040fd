"""Compiled functions without gradients return what eager returns, call after call."""

from __future__ import annotations

import contextlib
import math
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from support.configs import config_for
from support.devices import on_cuda

from dynx import cudagraphs
from dynx.cudagraphs._runtime.memcpy import CopiesNotFound
from dynx.cudagraphs._runtime.select import select_runtime
from dynx.errors import CaptureError, CaptureFailed, DynxWarning


def assert_equal(actual, expected):
    torch.testing.assert_close(actual, expected, equal_nan=False)


def mlp(device, width=8, depth=3):
    torch.manual_seed(0)
    layers = [layer for _ in range(depth) for layer in (torch.nn.Linear(width, width), torch.nn.GELU())]
    return torch.nn.Sequential(*layers).to(device)


@pytest.mark.parametrize("outputs", ["clone", "alias", "static"])
def test_compiled_replays_match_eager(compiled, device, inputs, outputs):
    model = mlp(device)
    run = compiled(model, outputs=outputs)
    with torch.no_grad():
        for step in range(5):
            x = torch.randn(4, 8, device=device) + step
            assert_equal(run(x), model(x))
    stats = cudagraphs.stats()
    copies = 0 if inputs == "patch" else 4
    assert (stats.recordings, stats.replays, stats.uncaptured, stats.copies) == (1, 4, 1, copies)
    assert stats.bytes_copied == copies * x.nbytes


def test_later_replays_do_not_overwrite_cloned_outputs(compiled, device):
    run = compiled(lambda x: x * 2)
    results = [run(torch.full((3,), float(step), device=device)) for step in range(5)]
    assert [result[0].item() for result in results] == [0.0, 2.0, 4.0, 6.0, 8.0]


def test_outputs_alias_option_returns_the_same_memory_in_every_replay(compiled, device):
    run = compiled(lambda x: x * 2, outputs="alias")
    addresses = set()
    for step in range(5):
        result = run(torch.full((3,), float(step), device=device))
        assert result[0].item() == 2.0 * step
        addresses |= {result.data_ptr()} if step else set()
    assert len(addresses) == 1


def test_parameters_changed_in_place_need_no_recapture(compiled, device):
    """backend="cudagraphs" of torch copies every parameter on every call; here a replay reads it in place."""
    model = torch.nn.Linear(4, 4, device=device)
    run = compiled(model)
    x = torch.ones(2, 4, device=device)
    with torch.no_grad():
        for _ in range(4):
            assert_equal(run(x), model(x))
            model.weight.add_(1)
    assert cudagraphs.stats().recordings == 1


def test_parameters_with_new_addresses_match_eager(compiled, device):
    model = torch.nn.Linear(4, 4, device=device)
    run = compiled(model)
    x = torch.ones(2, 4, device=device)
    with torch.no_grad():
        for step in range(5):
            assert_equal(run(x), model(x))
            model.weight.data = torch.full_like(model.weight, float(step))


def test_replays_mutate_inputs_as_in_eager(compiled, device):
    def forward(x, counter):
        counter.add_(1)
        x.mul_(2)
        return x + counter

    run = compiled(forward)
    counter, expected = torch.zeros(3, device=device), torch.zeros(3, device=device)
    for step in range(4):
        x, y = torch.full((3,), float(step), device=device), torch.full((3,), float(step), device=device)
        assert_equal(run(x, counter), forward(y, expected))
        assert_equal((x, counter), (y, expected))


def test_batch_norm_running_statistics_match_eager(compiled, device):
    torch.manual_seed(0)
    model, twin = torch.nn.BatchNorm1d(4).to(device), torch.nn.BatchNorm1d(4).to(device)
    run = compiled(model)
    with torch.no_grad():
        for step in range(5):
            x = torch.randn(8, 4, device=device) + step
            assert_equal(run(x), twin(x))
    assert_equal(dict(model.named_buffers()), dict(twin.named_buffers()))


LAYOUTS = {
    "expanded": lambda x: x[:, :1].expand(-1, 4),
    "transposed": lambda x: x.t(),
    "with gaps": lambda x: x[:, ::2],
    "overlapping": lambda x: x.as_strided((3, 3), (1, 1)),
    "empty": lambda x: x[:0],
}


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_outputs_for_strided_inputs_have_eager_values_and_strides(compiled, device, layout):
    def forward(x):
        return x * 2, x

    run = compiled(forward)
    for step in range(4):
        x = layout(torch.randn(4, 4, device=device) + step)
        assert_equal(run(x), forward(x))
        assert run(x)[0].stride() == forward(x)[0].stride()


def test_alternating_inference_mode_and_no_grad_matches_eager(compiled, device):
    model = mlp(device)
    run = compiled(model)
    x = torch.randn(4, 8, device=device)
    for mode in (torch.inference_mode, torch.no_grad, torch.inference_mode, torch.no_grad):
        for _ in range(3):
            with mode():
                assert_equal(run(x), model(x))


def test_concurrent_calls_from_threads_get_their_own_results(compiled, device):
    run = compiled(lambda x: (x * 2).relu())
    for _ in range(2):
        run(torch.ones(64, device=device))
    with ThreadPoolExecutor(4) as pool:
        calls = [pool.submit(run, torch.full((64,), float(step), device=device)) for step in range(200)]
        assert [call.result()[0].item() for call in calls] == [2.0 * step for step in range(200)]


@torch.library.custom_op("dynx_tests::call_again", mutates_args=())
def call_again(x: torch.Tensor, times: int) -> torch.Tensor:
    return _compiled[-1](x, times - 1) if times else x.clone()


_compiled = []


@call_again.register_fake
def _(x, times):
    return torch.empty_like(x)


def test_custom_operator_that_calls_the_compiled_function_matches_eager(compiled, device):
    _compiled.append(compiled(lambda x, times: call_again(x, times) * 2, dynamic=True))
    for _ in range(3):
        assert _compiled[-1](torch.ones(2, device=device), 3).tolist() == [16.0] * 2


def test_alternating_integer_arguments_match_eager(compiled, device):
    run = compiled(lambda x, n: x * n, dynamic=True)
    for n in (2, 3, 2, 3, 5, 2):
        assert_equal(run(torch.ones(3, device=device), n), torch.full((3,), float(n), device=device))


def test_alternating_dynamic_sizes_match_eager(compiled, device):
    run = compiled(lambda x: x.sin() + 1, dynamic=True)
    for size in (3, 4, 3, 4, 7, 3):
        x = torch.randn(size, device=device)
        assert_equal(run(x), x.sin() + 1)


def test_more_input_sizes_than_max_recordings_warn(compiled, device):
    run = compiled(lambda x: x + 1, dynamic=True, max_recordings=2)
    x = [torch.randn(size, device=device) for size in range(3, 7)]
    assert_equal([run(x[0]) for _ in range(2)], [x[0] + 1] * 2)
    with pytest.warns(DynxWarning, match="needs more than 2 recordings"):
        assert_equal([run(tensor) for tensor in x], [tensor + 1 for tensor in x])


def test_on_limit_lru_drops_the_least_recently_used_recording(compiled, device):
    run = compiled(lambda x: x + 1, dynamic=True, max_recordings=2, on_limit="lru")
    x = [torch.randn(size, device=device) for size in range(3, 6)]
    for number in (0, 0, 1, 0, 2, 0, 1):
        assert_equal(run(x[number]), x[number] + 1)
    assert cudagraphs.stats().recordings == 4, "size 3 was used in between, so it was kept"


def test_dropping_a_recording_while_its_output_is_alive_keeps_results_correct(compiled, device):
    run = compiled(lambda x: x + 1, dynamic=True, max_recordings=1, on_limit="lru", outputs="static")
    for size in (3, 3, 4, 3, 4):
        x = torch.randn(size, device=device)
        result = run(x)  # alive while the next size is recorded
        assert_equal(result, x + 1)
    assert cudagraphs.stats().recordings == 4


def test_on_limit_error_raises_for_an_input_size_over_the_limit(compiled, device):
    run = compiled(lambda x: x + 1, dynamic=True, max_recordings=1, on_limit="error")
    for size in (3, 3):
        run(torch.ones(size, device=device))
    with pytest.raises(CaptureError, match=r"needs more than 1 recording: they differ in x.size\(\)\[0\]"):
        run(torch.ones(4, device=device))


def assert_runs_uncaptured(run, eager, device):
    for step in range(4):
        x = torch.full((3,), float(step), device=device)
        expected = pytest.warns(DynxWarning, match="the inference graph runs uncaptured")
        with expected if step == 1 else contextlib.nullcontext():
            assert_equal(run(x), eager(x))
    stats = cudagraphs.stats()
    assert (stats.replays, stats.uncaptured, len(stats.skips)) == (0, 4, 1)


@pytest.mark.uncaptured
def test_compiled_function_runs_uncaptured_after_a_failed_capture(compiled, device, monkeypatch):
    def refuse(*args, **kwargs):
        raise CaptureFailed("refused by the test")

    monkeypatch.setattr(type(select_runtime(config_for(device))), "capture", refuse)
    assert_runs_uncaptured(compiled(torch.sin), torch.sin, device)
    assert cudagraphs.stats().skips[0].reason == "refused by the test"


@pytest.mark.uncaptured
@pytest.mark.parametrize("inputs", ["auto", "memcpy_node"])
def test_inputs_are_copied_outside_the_graph_if_capture_yields_no_memcpy_nodes(device, monkeypatch, inputs):
    """CUDA captures very small copies as kernels, whose source cannot be set."""
    config = config_for(device, inputs=inputs)
    runtime = type(select_runtime(config))
    capture = runtime.capture

    def capture_without(runtime, function, copies, *rest):
        if copies:
            raise CopiesNotFound("the graph has no memcpy node for the copies of the tensors with indices 0")
        return capture(runtime, function, copies, *rest)

    monkeypatch.setattr(runtime, "capture", capture_without)
    run = torch.compile(torch.sin, backend=cudagraphs.backend(config))
    if inputs == "memcpy_node":
        assert_runs_uncaptured(run, torch.sin, device), "inputs='memcpy_node' does not fall back to copies"
    else:
        for step in range(4):
            x = torch.full((3,), float(step), device=device)
            assert_equal(run(x), torch.sin(x))
        assert cudagraphs.stats().replays == 3


@torch.library.custom_op("dynx_tests::reads_value", mutates_args=())
def reads_value(x: torch.Tensor) -> torch.Tensor:
    return x + x[0].item()


@reads_value.register_fake
def _(x):
    return torch.empty_like(x)


@on_cuda
def test_custom_operator_that_reads_a_value_fails_the_capture(compiled, device):
    """The FX graph does not show that the operator reads a value; the capture fails."""
    assert_runs_uncaptured(compiled(lambda x: reads_value(x) + 1), lambda x: x + x[0] + 1, device)
    assert "reads_value.default cannot be captured: " in cudagraphs.stats().skips[0].reason
    torch.rand(3, device=device)  # in plain torch this raises: Offset increment outside graph capture encountered unexpectedly
    run = compiled(lambda x: torch.nn.functional.dropout(x + 1))
    for _ in range(3):
        assert run(torch.ones(3, device=device)).shape == (3,)
    assert cudagraphs.stats().replays == 2


@pytest.mark.uncaptured
def test_data_dependent_output_size_runs_uncaptured(compiled, device):
    run = compiled(lambda x: x[x > 0] * 2)
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True), pytest.warns(DynxWarning) as warnings:
        assert_equal(run(torch.ones(3, device=device)), torch.full((3,), 2.0, device=device))
    assert "returns a size that depends on values" in str(warnings[0].message)
    assert f"{__file__}:" in str(warnings[0].message)


def test_backend_warns_without_a_cuda_device(monkeypatch):
    monkeypatch.setattr("dynx.cudagraphs._runtime.select.has_cuda", lambda: False)
    run = torch.compile(lambda x: x + 1, backend=cudagraphs.backend())
    with pytest.warns(DynxWarning, match="no CUDA device"):
        run(torch.ones(3))


def test_scalars_zero_negative_zero_and_nan_get_separate_recordings(compiled, device, monkeypatch):
    monkeypatch.setattr(torch._dynamo.config, "capture_scalar_outputs", True)

    def inverse(x):
        return (torch.full((3,), x[0].item(), device=x.device).reciprocal() * 2).exp() * 1

    run = compiled(inverse)
    for value in (1.0, 1.0, 0.0, 0.0, -0.0, -0.0, *[math.nan] * 6):
        x = torch.full((1,), value, device=device)
        torch.testing.assert_close(run(x), inverse(x), equal_nan=True, rtol=0, atol=0)
    assert cudagraphs.stats().recordings <= 5, "1.0, 0.0, -0.0, and one for all NaN"


@pytest.mark.uncaptured
def test_calls_after_an_exception_at_the_recording_limit_match_eager(compiled, device):
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
def test_feeding_outputs_back_as_inputs_matches_eager(compiled, device, outputs):
    def step(a):
        b = a * 2
        return b, b.flip(0) + a

    run = compiled(step, outputs=outputs)
    actual = expected = torch.tensor([1.0, 2.0, 3.0], device=device)
    for _ in range(6):
        (actual, flipped), (expected, expected_flipped) = run(actual), step(expected)
        assert flipped.tolist() == expected_flipped.tolist()


def test_or_error_raises_on_every_call_over_the_recording_limit(compiled, device):
    run = compiled(lambda x: x.sin() + 1, dynamic=True, max_recordings=1, or_error=True)
    for _ in range(3):
        run(torch.ones(2, device=device))
    for _ in range(2):
        with pytest.raises(CaptureError, match="needs more than 1 recording"):
            run(torch.ones(3, device=device))
    assert run(torch.zeros(2, device=device)).tolist() == [1.0, 1.0]


def test_gradients_for_conjugated_complex_inputs_match_eager(compiled, device):
    def energy(z):
        return (z * z.conj()).real.sum() + (z * 2j).imag.sum()

    run = compiled(energy)
    for number in range(5):
        x = torch.full((3,), 1 + number * 1j, device=device).requires_grad_()
        run(x.conj() if number % 2 else x).backward()
        y = x.detach().clone().requires_grad_()
        energy(y.conj() if number % 2 else y).backward()
        torch.testing.assert_close(x.grad, y.grad)
