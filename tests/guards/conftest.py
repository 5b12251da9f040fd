"""Backends that write down who was asked to compile, and a function with a rest."""

from __future__ import annotations

import pytest
import torch


class Backends:
    """Backends that write down who was asked to compile."""

    def __init__(self):
        self.asked = []

    def named(self, name):
        asked = self.asked

        def backend(gm, inputs):
            asked.append(name)
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
