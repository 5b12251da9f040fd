"""Replace an `if` on the value of a tensor by `torch.where`, which computes both sides (branches)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import libcst as cst

from dynx._rewrites.source import Source, code_of, statement


def where(source: Source, line: int) -> Iterator[str]:
    """Yield the new text of a file, with the `if` or a conditional expression at a line replaced by `torch.where`."""
    if (branch := source.if_at(line)) is not None:
        yield from _statement(source, branch)
    for found in source.at_line(cst.IfExp, line):
        sides = found.body, found.orelse
        if not all(map(is_pure, sides)) or any(map(_is_no_tensor, sides)) or is_short_circuit(found.test):
            continue
        yield source.replaced(found, cst.parse_expression(_where(found.test, code_of(found.body), code_of(found.orelse))))


def _where(test: cst.BaseExpression, yes: str, no: str) -> str:
    if isinstance(test, cst.UnaryOperation) and isinstance(test.operator, cst.Not):
        test, yes, no = test.expression, no, yes
    return f"torch.where({_tensor(test)}, {yes}, {no})"


def is_short_circuit(test: cst.BaseExpression) -> bool:
    """Return whether a condition contains `and` or `or`, whose result may be a Python value instead of a tensor."""
    return isinstance(test, cst.BooleanOperation) or any(map(is_short_circuit, test.children))  # type: ignore[arg-type]


def parts_of(test: cst.BaseExpression) -> tuple[cst.BaseExpression | None, cst.BaseExpression] | None:
    """Split the test `a and b` into `a`, which stays in Python, and `b`, the condition for `torch.where`.

    For a test without `and` and `or`, return `(None, test)`. If the test cannot be split, return None.
    """
    if isinstance(test, cst.BooleanOperation) and isinstance(test.operator, cst.And) and not is_short_circuit(test.right):
        return test.left, test.right
    return None if is_short_circuit(test) else (None, test)


def in_place_of(found: cst.If, guard: cst.BaseExpression | None, lines: Sequence[str]) -> Any:
    """Return the nodes that replace an `if`: the statements `lines`, under `if guard:` unless `guard` is None."""
    if guard is None:
        return cst.FlattenSentinel(_with_comment(found, lines))
    body = found.body.with_changes(body=list(map(statement, lines)))
    return found.with_changes(test=guard, body=body, orelse=None, whitespace_before_test=cst.SimpleWhitespace(" "))


def condition_of(test: cst.BaseExpression) -> str:
    """Return the code of a condition as a tensor expression: `torch.logical_not(x)` for `not x`."""
    if isinstance(test, cst.UnaryOperation) and isinstance(test.operator, cst.Not):
        return negated(test.expression)
    return _tensor(test)


def negated(test: cst.BaseExpression) -> str:
    """Return the code of the negated condition as a tensor expression: `torch.logical_not(x)` for `x`."""
    if isinstance(test, cst.UnaryOperation) and isinstance(test.operator, cst.Not):
        return condition_of(test.expression)
    return f"torch.logical_not({_tensor(test)})"


def _tensor(test: cst.BaseExpression) -> str:
    """Return the code of an expression without its conversions to a Python number, such as `.item()`."""
    converted = test.visit(_WithoutConversions())
    assert isinstance(converted, cst.BaseExpression)
    return code_of(converted)


class _WithoutConversions(cst.CSTTransformer):
    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.BaseExpression:  # noqa: N802 - of libcst
        function, args = updated_node.func, updated_node.args
        if isinstance(function, cst.Attribute) and function.attr.value == "item" and not args:
            return function.value
        is_conversion = isinstance(function, cst.Name) and function.value in ("bool", "float", "int") and len(args) == 1
        return args[0].value if is_conversion else updated_node


def _statement(source: Source, found: cst.If) -> Iterator[str]:
    parent = source.parent(found)
    if not isinstance(parent, (cst.IndentedBlock, cst.Module)):
        return  # an `elif`
    sides = (found.body, *([found.orelse] if found.orelse is not None else []))
    if not all(map(is_pure, sides)):
        return
    yes = simple_body(found.body)
    no = simple_body(found.orelse.body) if isinstance(found.orelse, cst.Else) else None
    if yes is None or isinstance(found.orelse, cst.If):
        return
    returned, other = _returned(yes), _returned(no)
    parts = parts_of(found.test)
    if parts is None or (parts[0] is not None and (found.orelse is not None or not isinstance(found.body, cst.IndentedBlock))):
        return
    guard, test = parts
    if guard is not None:
        if returned is None and (lines := _assignments(source, test, yes, [])) is not None:
            yield source.replaced(found, in_place_of(found, guard, lines))
    elif returned is not None and other is not None:
        if (lines := _return(source, found.test, returned, other)) is not None:
            yield source.replaced(found, cst.FlattenSentinel(_with_comment(found, lines)))
    elif returned is not None and found.orelse is None:
        yield from _early(source, parent, found, returned)
    elif (lines := _assignments(source, test, yes, no or [])) is not None:
        yield source.replaced(found, in_place_of(found, None, lines))


def _with_comment(found: cst.If, lines: Sequence[str]) -> list[cst.SimpleStatementLine]:
    """Return the parsed statements that replace an `if`, with the comment above the `if` kept."""
    first, *more = map(statement, lines)
    return [first.with_changes(leading_lines=found.leading_lines), *more]


def _return(source: Source, test: cst.BaseExpression, yes: cst.BaseExpression, no: cst.BaseExpression) -> list[str] | None:
    """Return code that returns `torch.where(test, yes, no)` (tuples item by item); None if `yes` or `no` cannot be a tensor."""
    both = [_items(yes), _items(no)]
    if both[0] is None or both[1] is None or len(both[0]) != len(both[1]):
        if _is_no_tensor(yes) or _is_no_tensor(no):
            return None
        return [f"return {_where(test, code_of(yes), code_of(no))}"]
    condition, first, second = source.free_name("condition"), both[0], both[1]
    items = (a if a == b else f"torch.where({condition}, {a}, {b})" for a, b in zip(first, second, strict=True))
    return [f"{condition} = {condition_of(test)}", f"return {', '.join(items)}"]


def _is_no_tensor(value: cst.BaseExpression) -> bool:
    """Return whether an expression is a container, a string or None, which `torch.where` does not accept."""
    no_tensor = (cst.BaseDict, cst.BaseList, cst.BaseSet, cst.BaseString, cst.Tuple)
    return isinstance(value, no_tensor) or (isinstance(value, cst.Name) and value.value == "None")


def _items(value: cst.BaseExpression) -> list[str] | None:
    if not isinstance(value, cst.Tuple) or len(value.elements) < 2:
        return None
    if any(isinstance(element, cst.StarredElement) for element in value.elements):
        return None
    return [code_of(element.value) for element in value.elements]


def _early(source: Source, parent: Any, found: cst.If, value: cst.BaseExpression) -> Iterator[str]:
    """Yield the new text of a file in which `torch.where` replaces an early return (an `if` that only returns).

    The statements after the `if` then always run, and the last `return` selects one of the two results with `torch.where`.
    """
    siblings = list(parent.body)
    at = siblings.index(found)
    rest = siblings[at + 1 :]
    last = _returned(rest[-1:])
    if last is None:
        return
    if len(rest) == 1:
        returns = _return(source, found.test, value, last)
        if returns is None:
            return
        new = _with_comment(found, returns)
    elif _is_no_tensor(value) or _is_no_tensor(last):
        return
    else:
        condition, early = source.free_name("condition"), source.free_name("early")
        ends = statement(f"return torch.where({condition}, {early}, {code_of(last)})")
        new = _with_comment(found, [f"{condition} = {condition_of(found.test)}", f"{early} = {code_of(value)}"])
        new += [*rest[:-1], ends.with_changes(leading_lines=rest[-1].leading_lines)]
    yield source.replaced(parent, parent.with_changes(body=[*siblings[:at], *new]))


_FUNCTIONS = re.compile(
    r"(?:torch|F|nn\.functional|math|np)\.[\w.]*[^_\W]$|(?:abs|min|max|sum|len|float|int|bool|round|tuple)$"
)
_CHANGES = re.compile(r"append|extend|insert|remove|pop|clear|update|discard|write|put|send|backward|step|\w*_")  # methods


def is_pure(node: cst.CSTNode) -> bool:
    """Return whether code has no side effects: with `torch.where`, the side that an `if` would not take runs too.

    Calls of torch's functions and of most methods are assumed to have none, calls of other functions to have some.
    """
    return (not isinstance(node, cst.Call) or _is_pure_call(node.func)) and all(map(is_pure, node.children))


def _is_pure_call(function: cst.BaseExpression) -> bool:
    name = code_of(function)
    if _FUNCTIONS.match(name):
        return True
    return isinstance(function, cst.Attribute) and not name.startswith("self.") and not _CHANGES.fullmatch(function.attr.value)


def simple_body(block: Any) -> list[Any] | None:
    """Return the statements of a block; None if one of them is compound, such as a loop."""
    if isinstance(block, cst.SimpleStatementSuite):
        return [cst.SimpleStatementLine(block.body)]
    statements = list(block.body)
    return statements if all(isinstance(each, cst.SimpleStatementLine) for each in statements) else None


def _returned(statements: Sequence[Any] | None) -> cst.BaseExpression | None:
    """Return the returned expression of a block that is a single `return`; None for other blocks."""
    if not statements or len(statements) != 1 or not isinstance(statements[0], cst.SimpleStatementLine):
        return None
    parts = statements[0].body
    if len(parts) != 1 or not isinstance(parts[0], cst.Return):
        return None
    value: cst.BaseExpression | None = parts[0].value
    return value


def _assignments(source: Source, test: cst.BaseExpression, yes: list[Any], no: list[Any]) -> list[str] | None:
    """Return the statements with `torch.where` that replace an `if` whose blocks only assign; None if they do more."""
    first, second = _values(yes), _values(no)
    if first is None or second is None or not (first or second):
        return None
    names = list(dict.fromkeys([*first, *second]))
    if len(names) == 1:
        (name,) = names
        return [f"{name} = {_where(test, first.get(name, name), second.get(name, name))}"]
    condition = source.free_name("condition")
    lines = [f"{condition} = {condition_of(test)}"]
    return lines + [f"{name} = torch.where({condition}, {first.get(name, name)}, {second.get(name, name)})" for name in names]


def _values(statements: list[Any]) -> dict[str, str] | None:
    """Return the code of the value assigned to each name; None if the block does more, or uses a name after assigning it."""
    values: dict[str, str] = {}
    for part in (part for each in statements for part in each.body):
        if isinstance(part, cst.Pass):
            continue
        if isinstance(part, cst.Assign) and len(part.targets) == 1:
            if _is_no_tensor(part.value):
                return None
            name, value = code_of(part.targets[0].target), code_of(part.value)
        elif isinstance(part, cst.AugAssign):
            name = code_of(part.target)
            operand = code_of(part.value)
            operand = operand if isinstance(part.value, (cst.Name, cst.BaseNumber, cst.Call, cst.Attribute)) else f"({operand})"
            value = f"{name} {code_of(part.operator).strip().removesuffix('=')} {operand}"
        else:
            return None
        if "," in name or any(known in value for known in values):
            return None
        values[name] = value
    return values
