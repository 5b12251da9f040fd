"""Advice on a graph break in a function under functools.lru_cache, followed: assume_constant_result below the cache."""

from __future__ import annotations

import functools

import pytest
import torch

import dynx


def reader():
    """Return a new function: `assume_constant_result` marks the function itself."""

    def read(n):
        with open(__file__) as file:
            file.read(1)
        return 2.0 * n

    return read


@pytest.mark.filterwarnings("default:Dynamo detected a call:UserWarning")  # by which dynx knows of the cache
def test_the_result_of_a_cached_function_can_be_a_constant():
    cached = functools.lru_cache(reader())
    with dynx.watch() as w:
        torch.compile(lambda x: x * cached(3), backend="eager")(torch.ones(2))
    (finding,) = w.findings
    assert finding.alternatives[0].text.startswith(
        "put @torch.compiler.assume_constant_result below the lru_cache of reader.read: "
    )

    followed = functools.lru_cache(torch.compiler.assume_constant_result(reader()))
    with dynx.watch() as w:
        result = torch.compile(lambda x: x * followed(3), backend="eager", fullgraph=True)(torch.ones(2))
    assert not w.graph_breaks
    assert result.tolist() == [6.0, 6.0]


def test_the_order_of_the_decorators_matters():
    other = torch.compiler.assume_constant_result(functools.lru_cache(reader()))
    with dynx.watch() as w:
        torch.compile(lambda x: x * other(3), backend="eager")(torch.ones(2))
    assert len(w.graph_breaks) == 1


def test_a_function_without_a_cache_gets_no_such_advice():
    read = reader()
    with dynx.watch() as w:
        torch.compile(lambda x: x * read(3), backend="eager")(torch.ones(2))
    (finding,) = w.findings
    assert "lru_cache" not in finding.advice
