"""What dynx needs of torch: a table that is complete, compared with a snapshot for each version of torch."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import torch
from seam.private_names import is_private, private_names

from dynx._torch import capabilities as table
from dynx._torch import hooks
from dynx._torch.capabilities import HOOK_POINTS, capabilities, capability, require, signatures
from dynx.errors import UnsupportedTorch

SNAPSHOTS = Path(__file__).parent / "signatures"
VERSION = torch.__version__.partition("+")[0]
SEAM = Path(hooks.__file__).parent
TABLE = {entry.path.replace(":", ".") for entry in capabilities()}


def sources():
    return {file: file.read_text() for file in sorted(SEAM.rglob("*.py")) if file.name not in ("hooks.py", "capabilities.py")}


def test_this_torch_has_everything():
    assert [entry.name for entry in capabilities() if entry.state != "ok" and not entry.optional] == []


@pytest.mark.skipif(not (SNAPSHOTS / f"torch-{VERSION}.json").exists(), reason="no snapshot of this torch: see CONTRIBUTING.md")
def test_signatures_are_those_of_the_snapshot():
    """When an attribute of torch changes, this diff shows it; CONTRIBUTING.md explains how to take a new snapshot."""
    assert signatures() == json.loads((SNAPSHOTS / f"torch-{VERSION}.json").read_text())


def test_every_private_name_of_the_seam_is_in_the_table():
    """`dynx doctor` reports what the installed torch lacks: of a name that is not in the table, only the user would."""
    missing = [
        f"{file.relative_to(SEAM)}:{line} {path}"
        for file, source in sources().items()
        for path, line in private_names(source).items()
        if not any(entry == path or entry.startswith(f"{path}.") for entry in TABLE)
    ]
    assert missing == []


def test_every_name_in_the_table_is_used():
    """A name that nothing uses any more makes the doctor report faults that concern nobody."""
    text = "\n".join(sources().values())
    points = {entry.path for entry in (*HOOK_POINTS, *table.TOOL_POINTS)}
    attributes = [entry.path for entry in capabilities() if entry.path not in points]
    unused = [path for path in attributes if not re.search(rf"\b{re.escape(re.split('[:.]', path)[-1])}\b", text)]
    assert unused == []


def test_required_capabilities_are_names_of_the_table():
    """`require` of a misspelt name would raise KeyError at the user's."""
    names = {entry.name for entry in capabilities()}
    called = [
        name
        for source in sources().values()
        for call in re.findall(r"\brequire\(([^)]*)\)", source)
        for name in re.findall(r'"(\w+)"', call)
    ]
    assert called
    assert set(called) <= names


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("from torch._guards import Guard", {"torch._guards.Guard"}),
        ("import torch\ndef f(): return torch._C._foo(3)", {"torch._C", "torch._C._foo"}),
        ("def f():\n from torch import _C\n return _C._dynamo", {"torch._C", "torch._C._dynamo"}),
        ("def f():\n from torch import _C\ndef g(_C):\n return _C._other", {"torch._C"}),
        ("from torch import _C\ng = getattr(_C, '_gone', None)", {"torch._C", "torch._C._gone"}),
        ("import torch._dynamo.utils as utils\nutils.counters.clear", {"torch._dynamo.utils", "torch._dynamo.utils.counters"}),
        ("import torch\ntorch.nn.Module.__call__, torch.__version__, torch.compile", set()),
    ],
)
def test_private_names_are_found_as_code_reaches_them(source, expected):
    assert set(private_names(source)) == expected
    assert all(map(is_private, expected))


def test_a_changed_signature_is_reported(monkeypatch):
    owner, name = hooks.owner_of(HOOK_POINTS[0].path)
    monkeypatch.setattr(owner, name, lambda other, globals, locals: None)
    assert capability("compile").state == "changed"


def test_a_missing_hook_point_names_what_is_lost(monkeypatch):
    owner, name = hooks.owner_of(HOOK_POINTS[0].path)
    monkeypatch.delattr(owner, name)
    assert capability("compile").state == "missing"
    with pytest.raises(
        UnsupportedTorch, match=rf"torch {VERSION}.* has no .*_compile, which dynx needs for: every compilation"
    ):
        require("compile")


def test_a_feature_whose_attribute_is_gone_raises_where_it_begins(monkeypatch):
    """Not an ImportError of torch somewhere below."""
    from dynx._torch.ops.fast_checks import layout_check

    monkeypatch.delattr(torch._C._dynamo.guards, "TensorGuards")
    with pytest.raises(UnsupportedTorch, match=r"TensorGuards, which dynx needs for: cudagraphs\.fast_path"):
        layout_check([torch.ones(3)])
