"""What torch compiles to something else than eager code, without an error, by release."""

from __future__ import annotations

import pytest
import torch
from support.wrong_rows import RELEASES, ROWS, outcomes

RELEASE = ".".join(torch.__version__.split(".")[:2])


@pytest.mark.skipif(RELEASE not in RELEASES, reason="the results are known for some releases of torch")
@pytest.mark.parametrize("name", ROWS)
def test_torch_alone_is_wrong_in_the_releases_of_the_table(name):
    make, wrong_in = ROWS[name]
    fn, *calls = make()
    eager = outcomes(fn, calls)
    fn, *calls = make()
    compiled = outcomes(torch.compile(fn, backend="eager"), calls)
    assert (compiled != eager) == (RELEASE in wrong_in)
