"""`Config(verify=n)` while another thread draws random numbers from the generators that all threads share."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from support.configs import config_for
from support.hidden_number import Hidden, hidden_factor
from torch import nn

from dynx import cudagraphs
from dynx.errors import DynxWarning, ReplayDiffers


class Meanwhile:
    """What another thread does while a function runs, which no search finds, since the name is computed."""

    happens = staticmethod(lambda: None)


def calling(layer):
    """Return a function that calls a layer after what happens meanwhile: in uncaptured runs, not in replays."""

    def function(x):
        getattr(Meanwhile, "".join(("hap", "pens")))()
        return layer(x) * hidden_factor()

    return function


@pytest.fixture
def another_thread_draws(monkeypatch):
    """Return a function that makes another thread draw from the generator of the CPU in all uncaptured runs after it."""
    with ThreadPoolExecutor(1) as other:
        drawn = staticmethod(lambda: other.submit(torch.rand, 1).result())
        yield lambda: monkeypatch.setattr(Meanwhile, "happens", drawn)


def test_what_draws_nothing_is_compared_while_another_thread_draws(device, another_thread_draws):
    linear, x = nn.Linear(4, 4).to(device), torch.ones(2, 4, device=device)
    run = cudagraphs.fast_path(calling(linear), x, config=config_for(device, verify=5))
    another_thread_draws()
    for _ in range(8):
        torch.testing.assert_close(run(x), linear(x))
    assert cudagraphs.stats().verified == 5


def test_a_wrong_replay_is_found_while_another_thread_draws(device, another_thread_draws, monkeypatch):
    x = torch.ones(2, device=device)
    run = cudagraphs.fast_path(calling(nn.Identity()), x, config=config_for(device, verify=5))
    another_thread_draws()
    monkeypatch.setattr(Hidden, "factor", 3.0)
    with pytest.raises(ReplayDiffers, match="2 of 2 elements differ"):
        run(x)


@pytest.mark.parametrize("device", ["cpu"], indirect=True)
def test_random_numbers_that_another_thread_draws_too_are_not_compared(device, another_thread_draws):
    """Whose draws they were, nobody knows."""
    x = torch.ones(64, device=device)
    run = cudagraphs.fast_path(calling(nn.Dropout()), x, config=config_for(device, verify=3))
    another_thread_draws()
    for _ in range(3):
        with pytest.warns(
            DynxWarning, match=r"is not compared: another thread may have drawn random numbers \(torch for the CPU\)"
        ):
            run(x)
    run(x)
    assert cudagraphs.stats().verified == 0
