"""Size 1 is compiled on its own: a prompt and one token at a time are two graphs, whatever is marked."""

import math

import torch

from dynx.session import Watch


def decode(sizes, mark=False):
    torch._dynamo.reset()
    compiled = torch.compile(lambda ids: ids.sin() * ids.shape[1], backend="eager")
    with Watch(what_if=math.inf) as watch:
        for size in sizes:
            ids = torch.ones(2, size)
            if mark:
                torch._dynamo.mark_dynamic(ids, 1)
            compiled(ids)
    return watch


def test_one_recompile_is_expected_whatever_is_advised_for_the_other_sizes():
    watch = decode((20, 1, 21, 1, 22))
    (finding,) = watch.findings
    assert finding.title == "ids.size(1) 20, then 1, 21"
    assert finding.advice.startswith("mark_dynamic(ids, 1), and warm up with 2 or more (proven: 2 compiles, not 3); or")
    assert "one recompile for size 1 is expected" in finding.advice


def test_following_it_needs_the_compiles_that_it_says():
    watch = decode((20, 1, 21, 1, 22), mark=True)
    assert len(watch.compiles) == 2
