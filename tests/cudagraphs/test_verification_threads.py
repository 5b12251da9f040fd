"""`Config(verify=n)` while another thread draws random numbers from the generators that all threads share."""

from __future__ import annotations

import threading
import warnings
from contextlib import contextmanager

import pytest
import torch
from support.configs import config_for
from support.hidden_number import Hidden, hidden_factor
from torch import nn

from dynx import cudagraphs
from dynx.errors import DynxWarning, ReplayDiffers


@contextmanager
def another_thread_draws():
    """Draw from the generator of the CPU in another thread, all the time."""
    is_over = threading.Event()

    def draw():
        while not is_over.is_set():
            torch.rand(1)

    thread = threading.Thread(target=draw)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def test_what_draws_nothing_is_compared_while_another_thread_draws(device):
    linear, x = nn.Linear(4, 4).to(device), torch.ones(2, 4, device=device)
    run = cudagraphs.fast_path(linear, x, config=config_for(device, verify=5))
    with another_thread_draws():
        for _ in range(8):
            torch.testing.assert_close(run(x), linear(x))
    assert cudagraphs.stats().verified == 5


def test_a_wrong_replay_is_found_while_another_thread_draws(device, monkeypatch):
    layer, x = nn.Identity(), torch.ones(2, device=device)
    run = cudagraphs.fast_path(lambda x: layer(x) * hidden_factor(), config=config_for(device, verify=5))
    run(x), run(x)
    monkeypatch.setattr(Hidden, "factor", 3.0)
    with another_thread_draws(), pytest.raises(ReplayDiffers, match="2 of 2 elements differ"):
        run(x)


@pytest.mark.parametrize("device", ["cpu"], indirect=True)
def test_random_numbers_that_another_thread_draws_too_are_not_compared(device):
    """Whose draws they were, nobody knows."""
    run, x = cudagraphs.fast_path(nn.Dropout(), config=config_for(device, verify=40)), torch.ones(64)
    run(x), run(x)  # the emulator takes draws of other threads for its own
    with another_thread_draws(), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(40):
            run(x)
    texts = [str(each.message) for each in caught if issubclass(each.category, DynxWarning)]
    assert texts
    assert all("compared: " in text for text in texts)
