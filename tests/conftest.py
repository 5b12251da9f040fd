"""Fixtures: every test starts with an empty torch.compile and leaves torch as it found it."""

from __future__ import annotations

import logging

import pytest
from programs_runner import restored_torch

logging.getLogger("torch").setLevel(logging.ERROR)


@pytest.fixture(autouse=True)
def fresh_torch():
    """torch.compile without cache entries, and its settings back afterwards."""
    with restored_torch():
        yield


@pytest.fixture
def count_compiles():
    """A backend that runs eagerly and counts the graphs it was given."""

    def backend(graph_module, example_inputs):
        backend.count += 1
        return graph_module.forward

    backend.count = 0
    return backend
