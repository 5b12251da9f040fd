"""What the emulator refuses to capture, CUDA must not capture either: each case runs on both, against the function itself."""

from __future__ import annotations

import pytest
import torch
from support.configs import config_for
from support.devices import on_cuda
from torch import nn

from dynx import cudagraphs
from dynx.errors import DynxWarning

layer = nn.Identity()
on_cpu = torch.zeros(3)


def from_a_list(x):
    return x + torch.tensor([float(value) for value in range(len(x))]).to(x.device)


def own_generator(x):
    if x.device not in GENERATORS:
        GENERATORS[x.device] = torch.Generator(x.device)
    return x + torch.rand(len(x), device=x.device, generator=GENERATORS[x.device])


GENERATORS: dict[torch.device, torch.Generator] = {}


def seeded_fork(x):
    with torch.random.fork_rng([x.device.index] if x.is_cuda else []):
        torch.manual_seed(1)
        return x + torch.rand(len(x), device=x.device)


def sparse(x):
    return torch.eye(len(x), device=x.device).to_sparse() @ x[:, None]


REFUSED = {
    "item": lambda x: x * x.sum().item(),
    "float": lambda x: x * float(x[0]),
    "branch": lambda x: x + 1 if x.sum() > 0 else x - 1,
    "tolist": lambda x: x + len(x.tolist()),
    "equal": lambda x: x + torch.equal(x, x * 2),
    "allclose": lambda x: x + torch.allclose(x, x),
    "mask": lambda x: x[x > 0.5],
    "nonzero": lambda x: x.nonzero(),
    "unique": lambda x: x.unique(),
    "masked_select": lambda x: x.masked_select(x > 0.5),
    "repeat_interleave": lambda x: x.repeat_interleave(x.long() + 1),
    "where": lambda x: torch.where(x > 0.5)[0],
    "from a list": from_a_list,
    "own generator": own_generator,
    "seed": lambda x: x + torch.manual_seed(3).initial_seed() + torch.rand(len(x), device=x.device),
    "seeded fork": seeded_fork,
    "sparse": sparse,
}
ONLY_CUDA = (  # the emulator may copy from memory of the CPU, and sees no operator where values on the CPU are read
    "from a list",
    "tolist",
)


@pytest.mark.uncaptured
@pytest.mark.parametrize("name", [name for name in REFUSED if name not in ONLY_CUDA])
def test_results_are_those_of_the_function(device, name):
    assert_results_agree(REFUSED[name], device)


@on_cuda
@pytest.mark.parametrize("name", ONLY_CUDA)
def test_results_are_those_of_the_function_on_cuda(device, name):
    assert_results_agree(REFUSED[name], device)


def assert_results_agree(function, device):
    run = cudagraphs.fast_path(lambda x: function(layer(x)), config=config_for(device))
    inputs = [torch.rand(5, device=device) + 0.1 for _ in range(5)]
    with pytest.warns(DynxWarning, match="runs uncaptured"):
        results = [drawn(run, x, number) for number, x in enumerate(inputs)]
    GENERATORS.clear()
    for number, (x, result) in enumerate(zip(inputs, results, strict=True)):
        torch.testing.assert_close(result, drawn(function, x, number))


def drawn(function, x, seed):
    """Return the result of a function that starts with a seed; a generator of its own goes on."""
    torch.manual_seed(seed)
    with torch.no_grad():
        return function(x)
