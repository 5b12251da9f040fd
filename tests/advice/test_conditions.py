"""Operations that take True or False break the graph at a condition on a dynamic size, and not at `True if … else False`."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from dynx._rewrites.condition import decided
from dynx._rewrites.source import parse
from dynx.advice.facts.line_uses import flags
from dynx.session import Watch

CALLS = {
    "F.dropout(x, 0.5, training=n > 4)": "F.dropout(x, 0.5, training=True if n > 4 else False)",
    "F.dropout(x, 0.5, n > 4)": "F.dropout(x, 0.5, True if n > 4 else False)",
    "x.sum(dim=0, keepdim=n == 4)": "x.sum(dim=0, keepdim=True if n == 4 else False)",
    "x.topk(2, largest=n > 4 or n == 3)[0]": "x.topk(2, largest=True if n > 4 or n == 3 else False)[0]",
    "x.sort(descending=bool(n > 4))[0]": "x.sort(descending=True if bool(n > 4) else False)[0]",
    "x.sort(descending=descending)[0]": "x.sort(descending=True if descending else False)[0]",
}


def breaks_of(code):
    """Return the findings about graph breaks of a function that returns the value of an expression."""
    names = {"F": F, "torch": torch}
    exec(f"def f(x):\n    n = x.size(0)\n    descending = n > 4\n    return {code}", names)
    torch._dynamo.reset()
    with Watch() as watch:
        compiled = torch.compile(names["f"], backend="eager", dynamic=True)
        for size in (3, 5, 6):
            compiled(torch.ones(size, 4))
    return watch.graph_breaks


@pytest.mark.parametrize("code", CALLS)
def test_a_condition_breaks_the_graph_and_a_decided_one_does_not(code):
    found = breaks_of(code)
    assert {each.kind for each in found} == {"TypeError when making fake tensor call"}
    assert flags(code)
    assert [text.strip() for text in decided(parse(f"{code}\n"), 1)] == [CALLS[code]]
    assert not breaks_of(CALLS[code])


@pytest.mark.parametrize("code", ["x.sum(dim=0, keepdim=True)", "F.relu(x, inplace=self.inplace)", "bool(n > 4)", "x[n > 4]"])
def test_other_arguments_are_left(code):
    assert not flags(code)
    assert not list(decided(parse(f"{code}\n"), 1))
