"""Backends that record each compilation, and a function with a graph break."""

from __future__ import annotations

import pytest
import torch


class Backends:
    """Creates named backends; `compiled` lists the name of the backend of each compilation."""

    def __init__(self):
        self.compiled = []

    def named(self, name):
        compiled = self.compiled

        def backend(gm, inputs):
            compiled.append(name)
            return gm.forward

        return backend


@pytest.fixture
def backends():
    torch._dynamo.reset()
    yield Backends()
    torch._dynamo.reset()


@pytest.fixture
def broken():
    def broken(x):
        y = x + 1
        torch._dynamo.graph_break()
        return y * 2

    return broken
