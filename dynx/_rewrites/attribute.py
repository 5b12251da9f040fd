"""Store a tensor instead of a number in an attribute: `self.scale = torch.tensor(1.0)`."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from dynx._rewrites.source import Source, code_of


def as_tensor(source: Source, name: str) -> Iterator[str]:
    """Yield the new text of a file, in which all assignments to attributes called `name` assign tensors.

    Yield nothing if code outside of classes uses such an attribute, for example to print it: that code may need a number.
    """
    uses = (node for node in source.nodes(cst.Attribute) if node.attr.value == name)
    if not all(any(isinstance(each, cst.ClassDef) for each in source.parents(use)) for use in uses):
        return
    changes: dict[cst.CSTNode, cst.CSTNode] = {}
    for node in (*source.nodes(cst.Assign), *source.nodes(cst.AnnAssign)):
        targets = [each.target for each in node.targets] if isinstance(node, cst.Assign) else [node.target]
        is_named = any(isinstance(target, cst.Attribute) and target.attr.value == name for target in targets)
        if is_named and node.value is not None and not code_of(node.value).startswith(("torch.", "nn.")):
            function = "torch.tensor" if isinstance(node.value, (cst.Integer, cst.Float)) else "torch.as_tensor"
            changes[node.value] = cst.Call(cst.parse_expression(function), [cst.Arg(node.value)])
    if changes:
        yield source.replaced_all(changes)
