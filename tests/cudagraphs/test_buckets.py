"""Buckets: inputs are padded to one of a few sizes, so that many sizes need few recordings."""

from __future__ import annotations

import random

import pytest
import torch
from support.configs import config_for
from support.devices import on_cuda

from dynx import cudagraphs
from dynx.errors import DynxWarning, UsageError

SIZES = (1, 2, 4, 8, 16, 32)


@pytest.fixture
def model(device):
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.GELU(), torch.nn.Linear(8, 2)).to(device).eval()


def bucketed(device, function, *examples, buckets, **options):
    config = config_for(device, buckets=buckets, **options)
    return cudagraphs.fast_path(function, *examples, config=config)


def test_fast_path_captures_one_recording_per_bucket(device, model):
    run = bucketed(device, model, torch.ones(3, 4, device=device), buckets={0: SIZES})
    rng, outcomes = random.Random(0), []
    with torch.no_grad():
        for _ in range(100):
            x = torch.randn(rng.randint(1, 32), 4, device=device)
            outcomes.append((run(x), model(x)))
    for actual, expected in outcomes:  # replays of another bucket do not overwrite earlier outputs
        torch.testing.assert_close(actual, expected)
    assert (cudagraphs.stats().recordings, cudagraphs.stats().replays, cudagraphs.stats().uncaptured) == (6, 100, 6)


@pytest.mark.uncaptured
def test_input_sizes_above_the_largest_bucket_run_uncaptured(device, model):
    run = bucketed(device, model, torch.ones(3, 4, device=device), buckets={0: (2, 4)})
    x = torch.randn(5, 4, device=device)
    with torch.no_grad():
        with pytest.warns(DynxWarning, match="runs uncaptured: size 5 of dimension 0 is above the largest bucket"):
            actual = run(x)
        torch.testing.assert_close(actual, model(x))
    assert cudagraphs.stats().replays == 0


def test_buckets_for_two_dimensions_match_eager(device, model):
    def function(batch):
        return {"y": model(batch["x"]) * batch["mask"].unsqueeze(-1), "all": model(batch["x"]).sum(), "rows": batch["mask"]}

    def batch(rows, length):
        return {"x": torch.randn(rows, length, 4, device=device), "mask": torch.ones(rows, length, device=device)}

    run = bucketed(device, function, batch(1, 1), buckets={0: (2, 4), 1: (3, 6)})
    for rows, length in ((1, 1), (2, 3), (3, 5), (4, 6), (1, 6), (4, 1)):
        args = batch(rows, length)
        with torch.no_grad():
            actual, expected = run(args), function(args)
        torch.testing.assert_close(actual["y"], expected["y"])
        torch.testing.assert_close(actual["rows"], expected["rows"])
    assert cudagraphs.stats().recordings == 4


def test_inputs_are_padded_to_the_bucket_size_with_zeros(device):
    config = config_for(device, buckets={0: (4, 8)})
    run = cudagraphs.fast_path(
        lambda x: x.sum().expand(2), torch.ones(1, device=device), unsafe_skip_checks=True, config=config
    )
    for size in (8, 3, 5, 4):
        assert run(torch.ones(size, device=device))[0].item() == size


@pytest.mark.uncaptured
def test_invalid_buckets_options_raise(device, model):
    x = torch.ones(3, 4, device=device)
    with pytest.raises(UsageError, match=r"buckets=\{0: \(\)\}"):
        bucketed(device, model, x, buckets={0: ()})
    with pytest.raises(UsageError, match=r"results must be cloned"):
        bucketed(device, model, x, buckets={0: (4,)}, outputs="alias")
    with pytest.raises(UsageError, match="no argument has a dimension 7"):
        bucketed(device, model, x, buckets={7: (4,)})
    with pytest.raises(UsageError, match="need 4 recordings, but max_recordings is 3"):
        bucketed(device, model, x, buckets={0: (4, 8), 1: (4, 8)}, max_recordings=3)
    run = torch.compile(model, backend=cudagraphs.backend(config_for(device, buckets={0: (4,)})))
    with pytest.raises(Exception, match="buckets work only with"):
        run(x)


@on_cuda
def test_recordings_of_all_buckets_share_one_memory_pool(device):
    def memory_for(sizes):
        model = torch.nn.Sequential(*(torch.nn.Linear(1024, 1024, device=device) for _ in range(8)))
        cudagraphs.reset()
        torch.cuda.empty_cache()
        before = torch.cuda.memory_reserved()
        run = bucketed(device, model, torch.ones(1, 1024, device=device), buckets={0: sizes})
        torch.cuda.empty_cache()
        return torch.cuda.memory_reserved() - before, run

    largest, _ = memory_for((4096,))
    together, _ = memory_for((128, 256, 512, 1024, 2048, 4096))
    assert together <= 1.2 * largest, (together, largest)
