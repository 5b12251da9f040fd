"""Uses of random numbers that captures reject, on CUDA and in the emulator."""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from dynx._torch.ops.cuda_graphs import is_same_generator
from dynx.errors import CaptureFailed

SEED_OF_CAPTURES = random.SystemRandom().getrandbits(64)  # random, so that no function sets the same seed
SEED_WAS_SET = "the random seed was set during a capture\n  set it before the captured function is called"
DRAWS_TWICE = (
    "the backward pass draws random numbers of the forward pass again, as activation checkpoints do, and also new ones"
    "\n  draw the new ones outside of the captured function"
)


def check_generators(
    operator: Any, args: Sequence[Any], kwargs: Mapping[str, Any], registered: Collection[torch.Generator]
) -> None:
    """Raise CaptureFailed if an operator draws from a generator that is not `registered` with the graph."""
    used = (leaf for leaf in tree_leaves((args, dict(kwargs))) if isinstance(leaf, torch.Generator))
    if all(any(is_same_generator(leaf, known) for known in registered) for leaf in used):
        return
    if "rng_state" in kwargs:  # as AOTAutograd compiles activation checkpoints for CUDA
        raise CaptureFailed(
            "an activation checkpoint in a compiled function draws from a random number generator of its own"
            "\n  compile that function with backend='dynx_cudagraphs', instead of capturing the code around it"
        )
    raise CaptureFailed(
        f"{operator} draws from a random number generator of its own, which a replay would not advance"
        "\n  use the default generator of the device"
    )
