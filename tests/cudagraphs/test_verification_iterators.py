"""`Config(verify=n)` takes nothing from iterators: an uncaptured run would, and nothing puts it back."""

from __future__ import annotations

import random
import warnings

import numpy as np
import pytest
import torch
from support.configs import config_for
from torch import nn

from dynx import cudagraphs
from dynx.errors import DynxWarning


class Elements:
    """An iterator in Python, whose position no check reads."""

    def __init__(self):
        self.taken = 0

    def __next__(self):
        self.taken += 1
        return float(self.taken)

    def __iter__(self):
        return self


def loader_of(count=20):
    return torch.utils.data.DataLoader([float(number) for number in range(count)], batch_size=None)


ITERATORS = {
    "an iterator in Python, unchecked": (Elements, True),
    "a data loader, unchecked": (lambda: iter(loader_of()), True),
    "a generator, unchecked": (lambda: (float(number) for number in range(20)), True),
    "an iterator of a list, unchecked": (lambda: iter([float(number) for number in range(20)]), True),
}


@pytest.mark.parametrize("kind", ITERATORS)
def test_elements_of_an_iterator_are_not_taken_for_a_comparison(device, kind):
    """An uncaptured run would take a batch from a data loader, which nothing puts back."""
    make, is_unchecked = ITERATORS[kind]
    layer, taken = nn.Identity(), []
    for verify in (0, 3):
        elements = make()
        config = config_for(device, verify=verify)
        run = cudagraphs.fast_path(lambda x, e=elements: layer(x) + next(e), unsafe_skip_checks=is_unchecked, config=config)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", DynxWarning)
            _ = [run(torch.ones(4, device=device)) for _ in range(5)]
        taken.append(next(elements))
    assert taken[0] == taken[1]
    assert cudagraphs.stats().verified == 0
    (warning,) = (str(each.message) for each in caught if issubclass(each.category, DynxWarning))
    assert "is not verified: it uses a " in warning
    assert "which an uncaptured run would advance and nothing restores" in warning


def test_an_iterator_whose_position_is_checked_is_verified(device):
    """It stays where it is: a function that takes elements from it would run uncaptured."""
    layer, elements = nn.Identity(), iter([1.0, 2.0])
    run = cudagraphs.fast_path(lambda x: layer(x) + len([elements]), config=config_for(device, verify=2))
    _ = [run(torch.ones(4, device=device)) for _ in range(4)]
    assert (cudagraphs.stats().verified, next(elements)) == (2, 1.0)


@pytest.mark.parametrize("kind", ["Random", "Generator", "RandomState"])
def test_numbers_of_a_generator_are_not_drawn_for_a_comparison(device, kind):
    """Without checks, nothing sees that the function draws from a generator of its own."""
    make = random.Random if kind == "Random" else {"Generator": np.random.default_rng}.get(kind, np.random.RandomState)
    layer, drawn = nn.Identity(), []
    for verify in (0, 3):
        generator = make(0)
        config = config_for(device, verify=verify)
        run = cudagraphs.fast_path(lambda x, g=generator: layer(x) + g.random(), unsafe_skip_checks=True, config=config)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", DynxWarning)
            _ = [run(torch.ones(4, device=device)) for _ in range(5)]
        drawn.append(generator.random())
    assert drawn[0] == drawn[1]
    assert [f"it uses a {kind}" in str(each.message) for each in caught] == [True]


class HiddenElements:
    """An iterator that no search finds, since its name is computed."""

    elements = iter(())


def test_after_two_runs_that_differ_nothing_is_compared(device):
    """Each comparison would take elements of an iterator that no search finds."""
    HiddenElements.elements = iter(map(float, range(20)))
    layer = nn.Identity()
    run = cudagraphs.fast_path(
        lambda x: layer(x) + next(getattr(HiddenElements, "".join(("ele", "ments")))), config=config_for(device, verify=3)
    )
    x = torch.ones(4, device=device)
    run(x)
    with pytest.warns(DynxWarning, match="no later replay is compared"):
        run(x)
    taken = next(HiddenElements.elements)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _ = [run(x) for _ in range(3)]
    assert next(HiddenElements.elements) == taken + 1
