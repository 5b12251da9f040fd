"""How a source line uses a changed value: for a loop, as an index, or as a key."""

from __future__ import annotations

import pytest

from dynx.advice.facts.line_uses import calls_an_item, indexed_by, is_looked_up, loops_over


@pytest.mark.parametrize(
    ("code", "source", "expected"),
    [
        ("for _ in range(n):", "n", True),
        ("while count < n:", "n", True),
        ("return [x * i for i in range(self.depth)]", "self.depth", True),
        ("for block in blocks[:n]:", "n", True),
        ("for index, layer in enumerate(layers[n:]):", "n", True),
        ("for part in x.unbind(n):", "n", True),
        ("async for row in rows(n):", "n", True),
        ("for _ in range(config.steps):", "steps", True),
        ("for _ in range(length):", "n", True),  # read by another name
        ('return sum(x.sum() for x in xs) + kw["bias"]', "kw['bias']", False),
        ("for x in xs: y = y + x * scale", "scale", False),
        ("return x * n", "n", False),
        ("y = [x * scale for x in xs]", "scale", False),
        ("for (broken", "n", True),
        ("y = [x * n for x in range(length)]", "n", False),  # part of another name
        ("for _ in range(8):", "<value of line 4>", True),
        ("for _ in range(options['n']):", 'options["n"]', True),
    ],
)
def test_a_loop_runs_as_often_as_a_value_says(code, source, expected):
    assert loops_over(code, source) is expected


@pytest.mark.parametrize(
    ("code", "source", "indexed"),
    [
        ("return x * betas[t]", "t", ("betas", "betas[t]")),
        ("return x * self.betas[t + 1]", "t", ("self.betas", "self.betas[t + 1]")),
        ("if n not in self.cache: self.cache[n] = 1", "n", ("self.cache", "self.cache[n]")),
        ("return x[0] * t", "t", None),
        ("return x * self.drop(t)", "t", None),
        ("for row in", "t", None),
    ],
)
def test_what_is_indexed(code, source, indexed):
    assert indexed_by(code, source) == indexed


@pytest.mark.parametrize(
    ("code", "is_key"),
    [
        ("if n not in self.cache:", True),
        ("y = cache.get(n, 0)", True),
        ("y = cache.get(0, n)", False),
        ("for n in items:", False),
    ],
)
def test_a_value_that_is_looked_up(code, is_key):
    assert is_looked_up(code, "n") is is_key


@pytest.mark.parametrize(
    ("code", "is_called"),
    [
        ("mean, std = self.members[member](obs, act)", True),
        ("y = self.members[member % 2](obs)", True),
        ("y = betas[member] * self.members[0](obs)", False),
        ("y = betas[member].exp()", False),
        ("y = self.members[other](betas[member])", False),
    ],
)
def test_items_that_a_line_calls(code, is_called):
    assert calls_an_item(code, "member") == is_called
