"""The rules against programs that were written before them: what each must name, and what none may."""

from __future__ import annotations

import pytest
from programs_runner import PROGRAMS, expected, run, said

FILES = sorted(path for family in PROGRAMS.iterdir() if family.name != "site-packages" for path in family.glob("*.py"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_findings_are_exactly_the_marked_lines(path):
    """A user acts on every line of the report: a missing finding costs them time, a wrong one their trust."""
    source = path.read_text()
    seen = run(source, str(path))
    assert not seen.troubles
    assert said(seen) == expected(source)
