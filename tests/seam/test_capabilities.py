"""The table of torch attributes that dynx uses: it is complete, and its signatures match a snapshot for each torch version."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import torch
from seam.private_names import is_private, private_names
from seam.snapshot import signatures

from dynx._torch import capabilities as table
from dynx._torch import hooks
from dynx._torch.capabilities import HOOK_POINTS, capabilities, capability, hook_point, require
from dynx.errors import UnsupportedTorch

SNAPSHOTS = Path(__file__).parent / "signatures"
VERSION = torch.__version__.partition("+")[0]
SEAM = Path(hooks.__file__).parent
TABLE = {entry.path.replace(":", ".") for entry in capabilities()}


def sources():
    return {
        file: file.read_text()
        for file in sorted(SEAM.rglob("*.py"))
        if file.name not in ("hooks.py", "capabilities.py", "cuda_attributes.py", "hook_points.py")
    }


def test_installed_torch_has_every_required_capability():
    assert [entry.name for entry in capabilities() if entry.state != "ok" and not entry.optional] == []


@pytest.mark.skipif(not (SNAPSHOTS / f"torch-{VERSION}.json").exists(), reason="no snapshot of this torch: see CONTRIBUTING.md")
def test_signatures_of_the_capability_table_match_the_snapshot_of_this_torch():
    """When an attribute of torch changes, this diff shows it; CONTRIBUTING.md explains how to take a new snapshot."""
    assert signatures() == json.loads((SNAPSHOTS / f"torch-{VERSION}.json").read_text())


def test_every_private_torch_name_that_dynx_uses_is_in_the_capability_table():
    """`dynx doctor` reports the names of the table that torch lacks; any other missing name would fail in a program."""
    missing = [
        f"{file.relative_to(SEAM)}:{line} {path}"
        for file, source in sources().items()
        for path, line in private_names(source).items()
        if not any(entry == path or entry.startswith(f"{path}.") for entry in TABLE)
    ]
    assert missing == []


def test_every_name_in_the_capability_table_is_used():
    """For a name that nothing uses, `dynx doctor` would report a fault that affects nobody."""
    text = "\n".join(sources().values())
    points = {entry.path for entry in (*HOOK_POINTS, *table.TOOL_POINTS)}
    attributes = [entry.path for entry in capabilities() if entry.path not in points]
    unused = [path for path in attributes if not re.search(rf"\b{re.escape(re.split('[:.]', path)[-1])}\b", text)]
    assert unused == []


def test_every_require_call_names_a_capability_of_the_table():
    """`require` with a misspelt name would raise KeyError in a user's program."""
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
def test_private_torch_names_are_found_through_imports_attributes_and_getattr(source, expected):
    assert set(private_names(source)) == expected
    assert all(map(is_private, expected))


def test_capability_with_a_changed_signature_has_the_state_changed(monkeypatch):
    owner, name = hooks.owner_of(hook_point("compile").path)
    monkeypatch.setattr(owner, name, lambda other, globals, locals: None)
    assert capability("compile").state == "changed"


def test_requiring_a_missing_hook_point_raises_and_names_the_lost_feature(monkeypatch):
    owner, name = hooks.owner_of(hook_point("compile").path)
    monkeypatch.delattr(owner, name)
    assert capability("compile").state == "missing"
    with pytest.raises(
        UnsupportedTorch, match=rf"torch {VERSION}.* has no .*_compile, which dynx needs for: every compilation"
    ):
        require("compile")


def test_feature_that_needs_a_missing_torch_attribute_raises_unsupported_torch(monkeypatch):
    """The error names the attribute and the feature, unlike an ImportError from inside the feature."""
    from dynx._torch.ops.fast_checks import layout_check

    monkeypatch.delattr(torch._C._dynamo.guards, "TensorGuards")
    with pytest.raises(UnsupportedTorch, match=r"TensorGuards, which dynx needs for: cudagraphs\.fast_path"):
        layout_check([torch.ones(3)])
