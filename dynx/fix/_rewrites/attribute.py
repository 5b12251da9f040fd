"""Store a tensor instead of a number in an attribute: `self.scale = torch.tensor(1.0)`."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from dynx.fix._rewrites.source import Source, code_of

_NUMBERS = (cst.Integer, cst.Float)


def as_tensor(source: Source, name: str) -> Iterator[str]:
    """Yield the new text of a file, in which all assignments to attributes called `name` assign tensors.

    Yield nothing if code outside of classes uses such an attribute, for example to print it: that code may need a number.
    """
    if any(node.attr.value == name and not _is_own(source, node) for node in source.nodes(cst.Attribute)):
        return
    changes: dict[cst.CSTNode, cst.CSTNode] = {}
    for node in (*source.nodes(cst.Assign), *source.nodes(cst.AnnAssign)):
        targets = [each.target for each in node.targets] if isinstance(node, cst.Assign) else [node.target]
        is_named = any(isinstance(target, cst.Attribute) and target.attr.value == name for target in targets)
        if is_named and node.value is not None and not code_of(node.value).startswith(("torch.", "nn.")):
            function = "torch.tensor" if isinstance(node.value, _NUMBERS) else "torch.as_tensor"
            changes[node.value] = cst.Call(cst.parse_expression(function), [cst.Arg(node.value)])
    if changes:
        yield source.replaced_all(changes)


def _is_own(source: Source, node: cst.CSTNode | None) -> bool:
    """Return whether a node is inside a class definition."""
    while node is not None and not isinstance(node, cst.ClassDef):
        node = source.parent(node)
    return node is not None
