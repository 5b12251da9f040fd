"""Functions compiled with `isolate_recompiles=True`, which look up only cache entries of their own."""

from __future__ import annotations

import pytest
import torch

import dynx
from dynx._torch.compilation.isolation import has_regions


def add(x):
    return x.sin() + 1


@pytest.mark.filterwarnings("ignore:backend .* has the same code as an earlier backend:dynx.errors.DynxWarning")
def test_isolate_recompiles_shares_no_cache_entries(backends):
    if not has_regions():
        with pytest.raises(TypeError, match="isolate_recompiles"):
            dynx.compile(add, backend="eager", isolate_recompiles=True)
        return
    backend = backends.named("a")
    for _ in range(3):
        dynx.compile(add, backend=backend, isolate_recompiles=True)(torch.ones(3))
    assert backends.compiled == ["a"] * 3


@pytest.mark.skipif(not has_regions(), reason="this torch has no isolate_recompiles")
def test_compilations_that_are_isolated_are_no_recompiles():
    """As with torch.compile: the others' entries are not looked up. A change of what the function itself depends on is one."""
    x = torch.ones(3)
    for isolated in (torch.compile, dynx.compile):
        torch._dynamo.reset()
        with dynx.watch() as run:
            dynx.compile(add, backend="eager")(x)
            for _ in range(2):
                compiled = isolated(add, backend="eager", isolate_recompiles=True, dynamic=False)
                assert dynx.would_recompile(compiled, x).outcome == "compile"
                compiled(x)
            assert dynx.would_recompile(compiled, x).hit
            assert run.recompiles == ()
            verdict = dynx.would_recompile(compiled, torch.ones(4))
            compiled(torch.ones(4))
        assert (len(run.compiles), len(run.recompiles)) == (4, 1)
        assert [reason.source for reason in verdict.reasons] == ["x.size()[0]"]
        assert [(finding.rule, finding.count) for finding in run.findings] == [("DX102", 1)]
