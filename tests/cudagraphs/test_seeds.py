"""Functions that set seeds, and functions that draw random numbers of Python: a replay does neither."""

from __future__ import annotations

import random
import threading
import warnings

import numpy as np
import pytest
import torch
from support.configs import config_for
from support.device_work import CYCLES
from support.devices import on_cuda
from torch import nn

from dynx import cudagraphs
from dynx.errors import DynxWarning

SEED = "the random seed was set during a capture"


def set_manual_seed(device):
    torch.manual_seed(11)


def set_seed_of_device(device):
    (torch.cuda.manual_seed if device == "cuda" else torch.default_generator.manual_seed)(11)


def set_all_seeds(device):
    (torch.cuda.manual_seed_all if device == "cuda" else torch.manual_seed)(11)


def draw_new_seed(device):
    torch.seed()


FORKED = [0] if torch.cuda.is_available() else []  # of several devices torch warns


def fork_and_seed(device):
    with torch.random.fork_rng(FORKED):
        torch.manual_seed(11)
        torch.rand(2, device=device)


def restore_an_earlier_state(device):
    (torch.cuda.set_rng_state if device == "cuda" else torch.set_rng_state)(EARLIER[device])


EARLIER = {}


@pytest.fixture
def earlier_state(device):
    torch.manual_seed(5)
    EARLIER[device] = torch.cuda.get_rng_state() if device == "cuda" else torch.get_rng_state()


@pytest.mark.uncaptured
@pytest.mark.usefixtures("earlier_state")
@pytest.mark.parametrize(
    "set_seed",
    [set_manual_seed, set_seed_of_device, set_all_seeds, draw_new_seed, fork_and_seed, restore_an_earlier_state],
)
def test_a_function_that_sets_a_seed_runs_uncaptured(device, set_seed):
    """CUDA ignores in a capture that a seed is set which the generator has already, and a replay sets none."""
    model = nn.Linear(4, 4).to(device)

    def function(x):
        y = torch.rand(4, device=device) if set_seed is fork_and_seed else 0
        set_seed(device)
        return model(x) + y + torch.rand(4, device=device)

    run = cudagraphs.fast_path(function, config=config_for(device))
    with pytest.warns(DynxWarning, match=SEED):
        assert_draws_as(function, run, torch.ones(4, device=device), is_new=set_seed is draw_new_seed)


@torch.no_grad()
def assert_draws_as(function, run, x, *, is_new=False):
    """Assert that four calls draw what the function draws, or others in each call."""
    for seed in range(4):
        results = []
        for each in (run, function):
            random.seed(seed)
            torch.manual_seed(seed)
            results.append(each(x))
        assert torch.equal(*results) is not is_new


@pytest.mark.uncaptured
def test_a_training_step_that_sets_a_seed_runs_uncaptured(device):
    model = nn.Sequential(nn.Linear(4, 4), nn.Dropout()).to(device)

    def loss(x):
        torch.manual_seed(7)
        return model(x).square().mean()

    step = cudagraphs.train_step(loss, model.parameters(), config=config_for(device))
    losses = []
    with pytest.warns(DynxWarning, match=SEED):
        losses += [step(torch.ones(3, 4, device=device)).item() for _ in range(4)]
    assert len(set(losses)) == 1


def test_a_state_that_is_saved_and_restored_is_no_seed(device):
    layer = nn.Identity()

    def function(x):
        with torch.random.fork_rng(FORKED):
            y = nn.functional.dropout(x)
        return layer(y - nn.functional.dropout(x))

    run, x = cudagraphs.fast_path(function, config=config_for(device, or_error=True)), torch.ones(64, device=device)
    for _ in range(4):
        assert bool((run(x) == 0).all())


@on_cuda
def test_the_seed_after_a_capture_is_that_before_it(device):
    layer = nn.Identity()
    torch.manual_seed(9)
    torch.rand(3, device="cuda")
    generator = torch.cuda.default_generators[0]
    before = generator.initial_seed(), generator.get_offset()
    run = cudagraphs.fast_path(lambda x: layer(x + 1), torch.ones(2, device="cuda"))
    assert (generator.initial_seed(), generator.get_offset()) == before
    run(torch.ones(2, device="cuda"))


@pytest.mark.uncaptured
@pytest.mark.parametrize(
    "draw",
    [random.random, lambda: random.Random.random(random._inst), lambda: random.choice((1, 2, 3)), lambda: random.gauss(0, 1)],
)
def test_a_function_that_draws_numbers_of_python_runs_uncaptured(device, draw):
    model = nn.Linear(4, 4).to(device)

    def function(x):
        return model(x) * draw()

    run = cudagraphs.fast_path(function, config=config_for(device))
    with pytest.warns(DynxWarning, match=r"it draws random numbers of Python's random at .*test_seeds.py:\d+"):
        assert_draws_as(function, run, torch.ones(4, device=device))


def draw_from_a_module_that_is_imported_inside():
    import numpy

    return float(numpy.random.rand())


def draw_with_a_closure_variable():
    rand = np.random.rand
    return lambda: float(rand())


@pytest.mark.uncaptured
@pytest.mark.parametrize(
    "draw", [lambda: float(np.random.rand()), draw_from_a_module_that_is_imported_inside, draw_with_a_closure_variable()]
)
def test_a_function_that_draws_numbers_of_numpy_runs_uncaptured(device, draw):
    model = nn.Linear(4, 4).to(device)
    run = cudagraphs.fast_path(lambda x: model(x) * draw(), config=config_for(device))
    with pytest.warns(DynxWarning, match=r"it draws random numbers of NumPy at .*test_seeds.py:\d+"):
        results = [run(torch.ones(4, device=device)) for _ in range(4)]
    assert len({tuple(result.tolist()) for result in results}) == 4


def test_numbers_that_are_drawn_between_calls_do_not_matter(device):
    """As layerdrop does in training only: the code names NumPy's generator, and draws nothing."""
    model = nn.Linear(4, 4).to(device).eval()

    def function(x):
        return model(x) * (float(np.random.rand()) if model.training else 1)

    run, x = cudagraphs.fast_path(function, config=config_for(device, or_error=True)), torch.ones(4, device=device)
    for _ in range(4):
        np.random.rand()
        torch.testing.assert_close(run(x), model(x))
    assert cudagraphs.stats().replays == 3


def test_numbers_that_another_thread_draws_do_not_matter(device):
    """As a data loader does that augments images while the model runs."""
    model, end = nn.Linear(4, 4).to(device), threading.Event()

    def draw():
        while not end.wait(0.0001):
            random.random()

    thread = threading.Thread(target=draw)
    thread.start()
    run, x = cudagraphs.fast_path(model, config=config_for(device, or_error=True)), torch.ones(4, device=device)
    try:
        while cudagraphs.stats().replays < 3:
            torch.testing.assert_close(run(x), model(x))
    finally:
        end.set()
        thread.join()


@on_cuda
def test_the_call_that_records_draws_new_numbers_while_the_capture_stream_is_busy(device, monkeypatch):
    """torch sets the offset of random numbers to 0 on the stream that captures, to which a replay on another is not ordered."""
    begin = torch.cuda.CUDAGraph.capture_begin

    def delayed(self, *args, **kwargs):
        torch.cuda._sleep(CYCLES)
        return begin(self, *args, **kwargs)

    monkeypatch.setattr(torch.cuda.CUDAGraph, "capture_begin", delayed)
    x = torch.ones(4096, device="cuda")

    def function(x):
        torch.cuda._sleep(4 * CYCLES)
        return nn.functional.dropout(x, 0.5)

    torch.manual_seed(0)
    expected = [function(x) for _ in range(4)]
    torch.manual_seed(0)
    run = cudagraphs.fast_path(function, unsafe_skip_checks=True)
    for mask in expected:
        assert torch.equal(run(x), mask)


@on_cuda
def test_two_streams_that_replay_draw_different_numbers(device):
    """All graphs of a device read seed and offset in the same memory, which each replay fills on its own stream."""
    x = torch.ones(4096, device="cuda")

    def slow(x):
        torch.cuda._sleep(CYCLES)
        return nn.functional.dropout(x, 0.5)

    def fast(x):
        return nn.functional.dropout(x, 0.5)

    streams = torch.cuda.Stream(), torch.cuda.Stream()
    runs = [cudagraphs.fast_path(function, unsafe_skip_checks=True) for function in (slow, fast)]
    for run, stream in zip(runs, streams, strict=True):
        with torch.cuda.stream(stream):
            for _ in range(3):
                run(x)
    torch.cuda.synchronize()
    for seed in range(3):
        torch.manual_seed(seed)
        expected = [fast(x), fast(x)]
        torch.manual_seed(seed)
        results = []
        for run, stream in zip(runs, streams, strict=True):
            with torch.cuda.stream(stream):
                results.append(run(x))
        torch.cuda.synchronize()
        assert all(map(torch.equal, results, expected))


@on_cuda
def test_a_replay_that_draws_waits_for_the_capture_of_another_thread(device):
    """In torch the generator of a device is one for all threads, and refuses to be advanced while another thread captures."""
    x, layer = torch.ones(4096, device="cuda"), nn.Identity()
    run = cudagraphs.fast_path(lambda x: layer(nn.functional.dropout(x, 0.5)), x)
    run(x)
    in_capture, errors, results = threading.Event(), [], []

    def replay():
        in_capture.wait()
        try:
            results.append(run(x))
        except RuntimeError as error:
            errors.append(error)

    thread = threading.Thread(target=replay)
    thread.start()

    def captured(x):
        if torch.cuda.is_current_stream_capturing():
            in_capture.set()
            thread.join(0.2)
        return layer(nn.functional.dropout(x, 0.5))

    other = cudagraphs.fast_path(captured, x)
    thread.join()
    assert not errors
    assert bool((results[0] != other(x)).any())


@pytest.mark.uncaptured
def test_a_generator_of_numpy_that_the_function_makes_is_searched(device):
    """Its functions are those of Cython, whose class has no name of a module."""
    model = nn.Linear(4, 4).to(device)
    run = cudagraphs.fast_path(lambda x: model(x) * float(np.random.default_rng(0).random()), config=config_for(device))
    x = torch.ones(4, device=device)
    for _ in range(3):
        torch.testing.assert_close(run(x), (model(x) * float(np.random.default_rng(0).random())).detach())


@pytest.mark.uncaptured
def test_an_error_behind_a_function_that_dynamo_wraps_is_not_taken_for_a_seed(device):
    model = nn.Linear(4, 4).to(device)
    run = cudagraphs.fast_path(lambda x: torch.func.jvp(model, (x,), (x,))[1] * x.sum().item(), config=config_for(device))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", DynxWarning)
        for _ in range(3):
            run(torch.ones(2, 4, device=device))
    assert caught
    assert not any(SEED in str(warning.message) for warning in caught)
