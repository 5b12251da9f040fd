"""What becomes of the output and the hits of callbacks when the compilation fails, and when a graph break raises."""

from __future__ import annotations

import pytest
import torch

import dynx
from dynx.comptime import comptime, probe


def failing_backend(gm, inputs):
    raise ValueError("no")


def straight(x):
    y = x.sin()
    comptime(lambda ctx: ctx.log(y="y"))
    return y + 1


def breaking(x):
    y = x.sin()
    comptime(lambda ctx: ctx.log(y="y"))
    torch._dynamo.graph_break()
    return y + 1


def breaking_where_it_is_an_error(x):
    y = x.sin()
    comptime(lambda ctx: ctx.log(y="y"))
    with torch._dynamo.error_on_graph_break(True):
        torch._dynamo.graph_break()
    return y + 1


@pytest.mark.parametrize(
    ("function", "options", "outcome", "attempts"),
    [
        (straight, {"backend": "eager"}, "committed", ["committed"]),
        (straight, {"backend": failing_backend}, "failed", ["failed"]),
        (breaking, {"backend": "eager"}, "committed", ["restarted", "committed"]),
        (breaking, {"backend": failing_backend}, "failed", ["restarted", "failed"]),
        (breaking, {"backend": "eager", "fullgraph": True}, "failed", ["failed"]),
        (breaking_where_it_is_an_error, {"backend": "eager"}, "failed", ["failed"]),
    ],
    ids=["compiled", "backend-fails", "broken", "broken-backend-fails", "fullgraph", "error_on_graph_break"],
)
def test_outcome_of_a_callback_is_that_of_the_attempt(function, options, outcome, attempts, capsys):
    """The backend is part of an attempt: nothing is committed where it fails."""
    with dynx.watch() as run, probe(f"{__file__}:{function.__code__.co_firstlineno + 1}", do=lambda ctx: print("fired")) as p:
        if outcome == "failed":
            with pytest.raises(Exception, match=r"no|graph_break"):
                torch.compile(function, **options)(torch.ones(3))
        else:
            torch.compile(function, **options)(torch.ones(3))
    assert {log.outcome for log in run.logs} == {outcome}
    assert p.hits == (outcome == "committed")
    compilation = run.compiles[0]
    assert compilation.outcome == ("failed" if outcome == "failed" else "compiled")
    assert [attempt.outcome for attempt in compilation.attempts] == attempts
    is_raised_break = outcome == "failed" and options["backend"] == "eager"
    assert any(graph_break.fatal for graph_break in run.graph_breaks) == is_raised_break


def test_a_program_that_suppresses_errors_runs_eagerly_after_a_failure():
    with dynx.watch() as run, torch._dynamo.config.patch(suppress_errors=True), probe(straight, do=lambda ctx: None) as p:
        torch.testing.assert_close(torch.compile(straight, backend=failing_backend)(torch.ones(3)), torch.ones(3).sin() + 1)
    assert p.hits == 0
    assert [log.outcome for log in run.logs] == ["failed"]
