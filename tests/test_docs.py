"""The documents' code blocks run."""

from __future__ import annotations

import linecache
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DOCUMENTS = ["docs/comptime.md", "docs/guards.md"]
BLOCKS = [
    pytest.param(block, id=f"{name}-{number}")
    for name in DOCUMENTS
    for number, block in enumerate(re.findall(r"```python\n(.*?)```", (ROOT / name).read_text(), re.S))
]


@pytest.mark.parametrize("source", BLOCKS)
def test_the_block_runs(source, tmp_path):
    file = tmp_path / "block.py"
    file.write_text(source)
    linecache.checkcache()
    exec(compile(source, str(file), "exec"), {"__name__": "block"})
