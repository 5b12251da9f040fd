"""RNG states that a run may change: read, compared and restored."""

from __future__ import annotations

import pickle
import random
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch


def is_same(state: Any, other: Any) -> bool:
    """Return whether two RNG states are equal. Compares their pickles, since `==` of NumPy arrays returns no bool."""
    return pickle.dumps(state) == pickle.dumps(other)


class RandomStates(NamedTuple):
    """RNG states: torch's for the CPU and each CUDA device, and those of Python's `random`, NumPy, and `torch.Generator`s."""

    states: dict[str, Any]
    generators: list[torch.Generator]
    of_generators: list[torch.Tensor]

    @classmethod
    def of_now(cls, values: Sequence[Any]) -> RandomStates:
        states: dict[str, Any] = {"torch for the CPU": torch.get_rng_state().tolist(), "Python's random": random.getstate()}
        for number, generator in enumerate(torch.cuda.default_generators if torch.cuda.is_initialized() else ()):
            states[f"torch for cuda:{number}"] = generator.initial_seed(), generator.get_offset()
        if "numpy" in sys.modules:
            states["NumPy"] = sys.modules["numpy"].random.get_state(legacy=False)
        generators = [value for value in values if isinstance(value, torch.Generator)]
        return cls(states, generators, [generator.get_state() for generator in generators])

    def changed_since(self, other: RandomStates) -> set[str]:
        """Return the names of RNG states shared by all threads (all but those of `generators`) that differ from `other`."""
        return {what for what, state in self.states.items() if not is_same(state, other.states.get(what, state))}

    def put_back(self) -> None:
        states = dict(self.states)
        torch.set_rng_state(torch.tensor(states.pop("torch for the CPU"), dtype=torch.uint8))
        random.setstate(states.pop("Python's random"))
        if "NumPy" in states:
            sys.modules["numpy"].random.set_state(states.pop("NumPy"))
        for generator, (seed, offset) in zip(torch.cuda.default_generators, states.values(), strict=False):
            generator.manual_seed(seed).set_offset(offset)
        for generator, state in zip(self.generators, self.of_generators, strict=True):
            generator.set_state(state)
