"""The rules on the programs of `tests/programs`: lines marked `# DX101` have that finding, other lines have none."""

from __future__ import annotations

import pytest
from programs_runner import PROGRAMS, expected, findings_of, run, unsupported

FILES = sorted(path for family in PROGRAMS.iterdir() if family.name != "site-packages" for path in family.glob("*.py"))
# programs that compile with inductor, and models of transformers
LONG = [path for path in FILES if path.parent.name == "caches" or "_hf_" in path.stem or path.stem.startswith("hf_")]
CASES = [path for path in FILES if path not in LONG] + LONG


@pytest.mark.parametrize("path", CASES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_findings_of_a_program_are_exactly_the_lines_marked_with_a_rule(path):
    """A missing finding costs the user time; a wrong one costs trust in the report."""
    source = path.read_text()
    if why := unsupported(source):
        pytest.skip(why)  # the program says why this torch cannot run it: torch itself raises there
    watched = run(source, str(path))
    assert not watched.troubles
    assert findings_of(watched) == expected(source)
