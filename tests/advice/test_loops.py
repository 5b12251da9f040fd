"""Whether a changed value decides how often a loop runs, by the source line that reads it."""

from __future__ import annotations

import pytest

from dynx.advice.facts.loops import loops_over


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
