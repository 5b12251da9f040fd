"""Change the arguments of a compiled function: mark a tensor as dynamic before the call, or pass a number as a tensor."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import libcst as cst

from dynx._rewrites.source import Source, calls_at, code_of
from dynx.records.fix import Fix, Mark


class Passed(NamedTuple):
    """A value that a call passes to a function: an argument, or the part of it that `part` selects, such as `['ids']`."""

    argument: cst.Arg
    part: str


def mark(source: Source, definition: Source, fix: Fix) -> Iterator[str]:
    """Yield the text of `source` with `mark_dynamic` inserted before the call of a function that the file `definition` defines.

    An argument that is not a name, attribute or item is assigned to a variable first.
    """
    function = "torch._dynamo.mark_dynamic" if fix.may_fail else "torch._dynamo.maybe_mark_dynamic"
    for call in _with_arguments(source, fix):
        found = source.statement_of(call)
        if found is None or isinstance(found, (cst.While, cst.FunctionDef, cst.ClassDef)):
            continue
        if isinstance(source.parent(found), cst.If):
            continue  # an `elif`
        values = {each: _passed(call, definition, fix, each.source) for each in fix.marks}
        if values[fix.marks[0]] is None:
            continue
        named = _names(source, call, values)
        names = [f"{code_of(name)} = {code_of(node)}" for node, name in named.items()]
        passed = {
            each: value._replace(part=value.part.replace("'", source.quote))
            for each, value in values.items()
            if value is not None
        }
        marks = {f"{function}({_text_of(value, named)}, {each.dim})": value for each, value in passed.items()}
        above = {code_of(each).strip() for each in source.above(found)}
        marks = {line: value for line, value in marks.items() if line not in above}  # of an earlier fix
        if not marks:
            continue
        yield source.inserted(found, (*names, *marks), named)
        if any(value.argument.star for value in [*passed.values()][1:]):  # a later call may lack some items
            guarded = [_guarded(line, value, named) if number else line for number, (line, value) in enumerate(marks.items())]
            yield source.inserted(found, (*names, *guarded), named)


def as_tensor(source: Source, definition: Source, fix: Fix) -> Iterator[str]:
    """Yield the text of `source` in which a call passes `torch.tensor(x)` for `x`; `definition` has the called function."""
    for call in _with_arguments(source, fix):
        passed = _passed(call, definition, fix, fix.marks[0].source)
        if passed is not None and not passed.part and not code_of(passed.argument.value).startswith("torch."):
            value = passed.argument.value
            yield source.replaced(value, cst.Call(cst.parse_expression("torch.tensor"), [cst.Arg(value)]))


def _with_arguments(source: Source, fix: Fix) -> list[cst.Call]:
    return [call for call in calls_at(source, fix) if call.args]


def _names(source: Source, call: cst.Call, values: Mapping[Mark, Passed | None]) -> dict[cst.CSTNode, cst.CSTNode]:
    """Return new variables, by argument, for marked arguments that must not be evaluated twice, such as calls."""
    named: dict[cst.CSTNode, cst.CSTNode] = {}
    for each, passed in values.items():
        if passed is not None and not _is_simple(passed.argument.value) and passed.argument.value not in named:
            name = "inputs" if passed.argument.star else _split(each.source)[0]
            named[passed.argument.value] = cst.Name(source.free_name(name, call))
    return named


def _text_of(passed: Passed, named: Mapping[cst.CSTNode, cst.CSTNode]) -> str:
    """Return the caller's code for a passed value, such as `batch["ids"]`. `named` maps arguments to variables used instead."""
    return f"{code_of(named.get(passed.argument.value, passed.argument.value))}{passed.part}"


def _guarded(line: str, passed: Passed, named: Mapping[cst.CSTNode, cst.CSTNode]) -> str:
    """Return `line`, the code that marks a value; for an item of `**kwargs`, put it under an `if` that tests for the item."""
    item = re.match(r"\[(['\"]\w+['\"])\]", passed.part) if passed.argument.star else None
    return f"if {item[1]} in {_text_of(Passed(passed.argument, ''), named)}:\n    {line}" if item is not None else line


def _split(source: str) -> tuple[str, str]:
    """Split the source of a guard into parameter and remainder: `L['x'].mask` or `x.mask` into `x` and `.mask`."""
    match = re.match(r"(?:L\['(\w+)'\]|(\w+))(.*)", source)
    return (match[1] or match[2], match[3]) if match else (source, "")


def _is_simple(node: cst.BaseExpression) -> bool:
    """Return whether an expression is a name, attribute or item, so that it can be evaluated twice."""
    if isinstance(node, cst.Name):
        return True
    if isinstance(node, cst.Attribute):
        return _is_simple(node.value)
    return isinstance(node, cst.Subscript) and _is_simple(node.value)


def _passed(call: cst.Call, definition: Source, fix: Fix, source: str) -> Passed | None:
    """Return the argument, or a part of it, that the called function reads as `source` (`L['x'].mask`); None if not found."""
    function = definition.function_at(fix.location.line) if fix.location is not None else None
    name, rest = _split(source)
    if function is not None and _is_named(function.params.star_kwarg, name) and (item := re.match(r"\['(\w+)'\]", rest)):
        name, rest = item[1], rest[item.end() :]  # of `**kwargs`
    if (named := next((arg for arg in call.args if arg.keyword is not None and arg.keyword.value == name), None)) is not None:
        return Passed(named, rest)
    number = _position(function, name, rest)
    if number is not None and number[0] < len(positional := [arg for arg in call.args if arg.keyword is None and not arg.star]):
        has_star = any(arg.star == "*" for arg in call.args)
        return None if has_star else Passed(positional[number[0]], number[1])
    starred = [arg for arg in call.args if arg.star == "**"]
    return Passed(starred[0], f"['{name}']{rest}") if len(starred) == 1 else None


def _position(function: cst.FunctionDef | None, name: str, rest: str) -> tuple[int, str] | None:
    """Return a positional argument's index and a path in it: (1, ".mask") for `y.mask` in `f(x, y)`; None if not positional."""
    if function is None:
        return None
    names = [each.name.value for each in (*function.params.posonly_params, *function.params.params)]
    if names[:1] in (["self"], ["cls"]) and name != names[0]:
        del names[0]
    if name in names:
        return names.index(name), rest
    if _is_named(function.params.star_arg, name) and (item := re.match(r"\[(\d+)\]", rest)):
        return len(names) + int(item[1]), rest[item.end() :]  # of `*args`
    return None


def _is_named(parameter: object, name: str) -> bool:
    return isinstance(parameter, cst.Param) and parameter.name.value == name
