"""Every step hands over a new named tuple with new tensors of the same shapes; its length and type never change."""
from typing import NamedTuple

import torch


class State(NamedTuple):
    position: torch.Tensor
    velocity: torch.Tensor


@torch.compile(backend="eager")
def advance(state, force):
    velocity = state.velocity + 0.1 * force
    position = state.position + 0.1 * velocity
    return State(position, velocity)


torch.manual_seed(0)
state = State(torch.zeros(3), torch.zeros(3))
for _ in range(4):
    state = advance(state, torch.randn(3))
