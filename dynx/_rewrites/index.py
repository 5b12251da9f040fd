"""Reshape 0-dim index tensors to (1,): torch would read them as Python numbers, and guard on the value."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from dynx._rewrites.source import Source, code_of


def by_element(source: Source, line: int) -> Iterator[str]:
    """Yield new texts of a file, in which each variable `i` that is an index at a line becomes the index `i.view(1)`.

    All uses of these variables as indices in the function around the line are changed. The second text also changes indices
    that are parameters of the function; the third has `torch.as_tensor(i).view(1)`, which accepts numpy numbers.
    """
    function = next(source.at_line(cst.FunctionDef, line), None)
    if function is None:
        return
    found = {node: name for node in source.nodes(cst.Subscript) if (name := _index(node)) and function in source.parents(node)}
    at_line = {name for node, name in found.items() if node in source.at_line(cst.Subscript, line)}
    parameters = {each.name.value for each in (*function.params.posonly_params, *function.params.params)}
    if at_line:
        for names, form in (
            (at_line, "{}.view(1)"),
            (at_line | parameters, "{}.view(1)"),
            (at_line, "torch.as_tensor({}).view(1)"),
        ):
            chosen = {node: _element(source, node, form.format(name)) for node, name in found.items() if name in names}
            yield source.replaced_all(chosen)


def _index(node: cst.Subscript) -> str | None:
    """Return the name that is the index of a subscript; None if the index is not a name."""
    index = node.slice[0].slice if len(node.slice) == 1 else None
    return index.value.value if isinstance(index, cst.Index) and isinstance(index.value, cst.Name) else None


def _element(source: Source, node: cst.Subscript, index: str) -> cst.BaseExpression:
    """Return the expression `x[index]` for the subscript `x[…]`, with `.squeeze(0)` unless it is assigned to or deleted."""
    text = f"{code_of(node.value)}[{index}]"
    parent = source.parent(node)
    is_target = isinstance(parent, (cst.AssignTarget, cst.Del)) or (isinstance(parent, cst.AugAssign) and parent.target is node)
    return cst.parse_expression(text if is_target else f"{text}.squeeze(0)")
