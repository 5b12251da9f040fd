"""`torch.compiler.set_stance("fail_on_recompile")`: a refused recompile is reported, and torch's error is unchanged."""

from __future__ import annotations

import re

import pytest
import torch

import dynx


@pytest.fixture
def doubled():
    """A function compiled for contiguous images, under the stance "fail_on_recompile"."""

    def double(images):
        return images * 2

    compiled = torch.compile(double, backend="eager")
    with dynx.watch() as watch:
        compiled(torch.ones(2, 3, 4, 5))
        with torch.compiler.set_stance("fail_on_recompile"):
            yield compiled, watch


def test_refused_recompile_is_reported_with_its_cause_advice_and_call(doubled):
    """torch's error has only the guard, which a service logs far from the call; `dynx run` used to report nothing."""
    compiled, watch = doubled
    with pytest.raises(RuntimeError, match="stride mismatch at index 1") as error:
        compiled(torch.ones(2, 4, 5, 3).permute(0, 3, 1, 2))
    (recompile,) = watch.run.recompiles
    (finding,) = watch.run.findings
    assert (recompile.outcome, recompile.seconds, recompile.reasons[0].source) == ("refused", 0.0, "images.stride()[1]")
    assert finding.rule == "DX117"
    assert finding.title == 'raised under the stance "fail_on_recompile": images.stride(1) 20, then 1'
    assert "contiguous" in finding.advice
    assert (finding.called_from.file, finding.called_from.line) == (__file__, error.traceback[0].lineno + 1)


def test_refused_recompile_counts_as_a_failed_compilation(doubled):
    compiled, watch = doubled
    with pytest.raises(RuntimeError):
        compiled(torch.ones(3, 3))
    assert [compile.outcome for compile in watch.run.compiles] == ["compiled", "failed"]
    assert re.match("fail_on_recompile", watch.run.compiles[1].reason)


def test_watching_does_not_change_the_error_of_the_stance(doubled):
    compiled, watch = doubled
    with pytest.raises(RuntimeError) as watched:
        compiled(torch.ones(3, 3))
    watch.__exit__(None, None, None)
    with pytest.raises(RuntimeError) as plain:
        compiled(torch.ones(3, 3))
    assert str(watched.value) == str(plain.value)


def test_calls_that_match_a_cache_entry_are_not_reported(doubled):
    compiled, watch = doubled
    compiled(torch.zeros(2, 3, 4, 5))
    assert watch.run.recompiles == ()
