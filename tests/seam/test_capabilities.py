"""What dynx needs of torch, held against a snapshot per version: drift shows as a diff."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest
import torch

from dynx._torch import hooks
from dynx._torch.capabilities import HOOK_POINTS, capabilities, capability, signatures
from dynx.errors import UnsupportedTorch

SNAPSHOTS = Path(__file__).parent / "signatures"
VERSION = torch.__version__.partition("+")[0]


def test_this_torch_has_everything():
    assert [each.name for each in capabilities() if each.state != "ok" and not each.optional] == []


@pytest.mark.skipif(not (SNAPSHOTS / f"torch-{VERSION}.json").exists(), reason="no snapshot of this torch: see CONTRIBUTING.md")
def test_signatures_are_those_of_the_snapshot():
    """When torch moves, this diff says where; CONTRIBUTING.md says how to take a new snapshot."""
    assert signatures() == json.loads((SNAPSHOTS / f"torch-{VERSION}.json").read_text())


def test_the_table_names_everything_the_seam_imports():
    """An attribute that is used but not in the table would move without anybody noticing."""
    known = {path.replace(":", ".") for path in signatures()}
    modules = {path.partition(":")[0] for path in signatures()}
    for file in Path(hooks.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(("torch._", "torch.fx.experimental")):
                for name in (alias.name for alias in node.names):
                    path = f"{node.module}.{name}"
                    assert path in modules or any(each == path or each.startswith(path + ".") for each in known), (
                        f"{file.name} uses {path}, which is not in the table"
                    )


def test_a_changed_signature_is_noticed(monkeypatch):
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
        capability("compile").require()
