"""Backends that write down who was asked to compile."""

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
