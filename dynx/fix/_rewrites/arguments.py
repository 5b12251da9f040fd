"""Change what is passed to a compiled function: mark a tensor as dynamic before the call, or pass a number as a tensor."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

import libcst as cst

from dynx.fix._rewrites.source import Source, calls_at, code_of
from dynx.records.fix import Fix, Mark


def mark(source: Source, definition: Source, fix: Fix) -> Iterator[str]:
    """Yield the text of a file with `mark_dynamic` before the call of a function.

    An argument that is no name, attribute or item is given a name first.

    Args:
        source: The file with the call.
        definition: The file with the function.
        fix: The fix, with the lines of both.
    """
    function = "torch._dynamo.maybe_mark_dynamic" if fix.code.startswith("maybe_") else "torch._dynamo.mark_dynamic"
    for call in _with_arguments(source, fix):
        found = source.statement_of(call)
        if found is None or isinstance(found, (cst.While, cst.FunctionDef, cst.ClassDef)):
            continue
        if isinstance(source.parent(found), cst.If):
            continue  # an `elif`
        named: dict[cst.CSTNode, cst.CSTNode] = {}
        for node, name in _names(source, call, definition, fix):
            named[node] = name
        lines = [f"{code_of(name)} = {code_of(node)}" for node, name in named.items()]
        marks = [_mark_of(call, definition, fix, each, named) for each in fix.marks]
        if marks[0] is None:
            continue
        lines += [f"{function}({each})" for each in dict.fromkeys(filter(None, marks))]
        yield source.inserted(found, lines, named)


def as_tensor(source: Source, definition: Source, fix: Fix) -> Iterator[str]:
    """Yield the text of a file with an argument of a call passed as `torch.tensor(argument)`."""
    for call in _with_arguments(source, fix):
        argument = _argument(call, definition, fix, _name(fix.marks[0].source))
        if argument is not None and not code_of(argument.value).startswith("torch."):
            new = cst.Call(cst.parse_expression("torch.tensor"), [cst.Arg(argument.value)])
            yield source.replaced(argument.value, new)


def _with_arguments(source: Source, fix: Fix) -> list[cst.Call]:
    return [call for call in calls_at(source, fix) if call.args]


def _names(source: Source, call: cst.Call, definition: Source, fix: Fix) -> Iterator[tuple[cst.BaseExpression, cst.Name]]:
    """Yield the arguments that have to be marked and cannot be evaluated twice, each with a name for it."""
    for parameter in dict.fromkeys(_name(each.source) for each in fix.marks):
        argument = _argument(call, definition, fix, parameter)
        if argument is not None and not _is_simple(argument.value):
            yield argument.value, cst.Name(source.free_name(parameter, call))


def _mark_of(call: cst.Call, definition: Source, fix: Fix, each: Mark, named: Mapping[cst.CSTNode, cst.CSTNode]) -> str | None:
    """Return the arguments of `mark_dynamic` for a tensor in the words of the caller: `batch["ids"], 1`."""
    name = _name(each.source)
    argument = _argument(call, definition, fix, name)
    if argument is None:
        return None
    rest = each.source.removeprefix(f"L['{name}']").removeprefix(name)
    return f"{code_of(named.get(argument.value, argument.value))}{rest}, {each.dim}"


def _name(source: str) -> str:
    """Return the parameter in a source: `x` in `L['x']` and in `x.mask`."""
    match = re.match(r"L\['(\w+)'\]|(\w+)", source)
    return (match[1] or match[2]) if match else source


def _is_simple(node: cst.BaseExpression) -> bool:
    """Return whether an expression can be evaluated twice: names, attributes and items."""
    if isinstance(node, cst.Name):
        return True
    if isinstance(node, cst.Attribute):
        return _is_simple(node.value)
    return isinstance(node, cst.Subscript) and _is_simple(node.value)


def _argument(call: cst.Call, definition: Source, fix: Fix, name: str) -> cst.Arg | None:
    """Return the argument of a call that becomes a parameter of the function."""
    for arg in call.args:
        if arg.star:
            return None
        if arg.keyword is not None and arg.keyword.value == name:
            return arg
    function = definition.function_at(fix.location.line) if fix.location is not None else None
    if function is None:
        return None
    parameters = [each.name.value for each in (*function.params.posonly_params, *function.params.params)]
    if parameters[:1] in (["self"], ["cls"]) and name != parameters[0]:
        del parameters[0]
    positional = [arg for arg in call.args if arg.keyword is None]
    if name not in parameters or parameters.index(name) >= len(positional):
        return None
    return positional[parameters.index(name)]
