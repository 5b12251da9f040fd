"""A runtime for what inductor compiles for the CPU: a replay runs the captured function again, on the same inputs and outputs.

It shows what the runner does around a capture: which values reach which piece, in which memory, in which order. Captured
functions must not write to parameters or buffers, since the capture runs them too.
"""

from __future__ import annotations

from threading import get_ident

import torch

from dynx.cudagraphs._runtime.interface import no_clones


class RerunGraph:
    def __init__(self, function):
        self._function = function
        self.outputs = self._run()

    def _run(self):
        with torch.no_grad():
            return self._function([])

    def replay(self):
        for target, value in zip(self.outputs, self._run(), strict=True):
            if isinstance(target, torch.Tensor):
                target.copy_(value.clone())  # it may share memory with another one

    def set_sources(self, tensors):
        assert not tensors

    set_targets = set_sources

    def in_order(self, run, tensors):
        return run

    def release(self, tensors):
        pass

    def close(self):
        self.outputs = None


class RerunRuntime:
    device = torch.device("cpu")

    def __init__(self):
        self._capturing = []

    def warm_up(self, function):
        return function()

    def is_warmed_up(self):
        return True

    def is_capturing(self):
        return get_ident() in self._capturing

    def can_set_memcpy_nodes(self):
        return False

    def new_pool(self, what):
        return what

    def capture(self, function, sources=(), select_clones=no_clones, pool=None, generators=(), forward=None):
        assert not sources
        state = torch.get_rng_state()
        self._capturing.append(get_ident())
        try:
            return RerunGraph(function)
        finally:
            self._capturing.pop()
            torch.set_rng_state(state)
