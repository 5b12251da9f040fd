"""How a source line uses a value: Dynamo unrolls loops for each length or number, and needs the value of an index or a key."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

_LOOP = re.compile(r"^(?:async )?(?:for|while)\b|\bfor\b.*\bin\b|\brange\(|\.unbind\(|\benumerate\(|\bzip\(")
# keywords for bools, also if a variable is passed
_FLAGS = ("is_causal", "training", "train", "keepdim", "largest", "descending")
_COUNTING = ("range", "enumerate", "zip", "unbind", "islice")  # calls whose arguments decide how often a loop runs


def is_loop(code: str) -> bool:
    """Return whether a source line has a loop, or makes what loops run over."""
    return bool(_LOOP.search(code))


def loops_over(code: str, source: str) -> bool:
    """Return whether a value decides how often the loop in a source line runs: not if the line reads it elsewhere only."""
    if not is_loop(code):
        return False
    tree, value = _parsed(code), _parsed(source)
    if tree is None or value is None or not _reads(tree, ast.unparse(value)):
        return True  # the line reads it by another name
    return any(_reads(node, ast.unparse(value)) for node in _deciding(tree))


def indexed_by(code: str, source: str) -> tuple[str, str] | None:
    """Return the container that a source line indexes with a value, and the item: `betas`, `betas[t + 1]`; or None."""
    tree, value = _parsed(code), _parsed(source)
    if tree is None or value is None:
        return None
    for node in ast.walk(tree):
        match node:
            case ast.Subscript(value=container, slice=index) if _reads(index, ast.unparse(value)):
                return ast.unparse(container), ast.unparse(node)
    return None


def calls_an_item(code: str, source: str) -> bool:
    """Return whether a source line calls what it finds at an index: `self.experts[n](x)`. The container is no tensor."""
    tree, value = _parsed(code), _parsed(source)
    if tree is None or value is None:
        return False
    name = ast.unparse(value)
    items = (node.func for node in ast.walk(tree) if isinstance(node, ast.Call))
    return any(isinstance(item, ast.Subscript) and _reads(item.slice, name) for item in items)


def is_looked_up(code: str, source: str) -> bool:
    """Return whether a source line looks for a value in a container: `n in self.cache`, `cache.get(n)`."""
    tree, value = _parsed(code), _parsed(source)
    if tree is None or value is None:
        return False
    name = ast.unparse(value)
    for node in ast.walk(tree):
        match node:
            case ast.Compare(left=left, ops=[ast.In() | ast.NotIn()]) if _reads(left, name):
                return True
            case ast.Call(func=ast.Attribute(attr="get" | "setdefault" | "pop"), args=[key, *_]) if _reads(key, name):
                return True
    return False


def flags(code: str) -> list[str]:
    """Return the arguments of calls in a source line that are conditions: `causal=n > 1` for `attend(q, causal=n > 1)`."""
    calls = [node for node in ast.walk(_parsed(code) or ast.Module([], [])) if isinstance(node, ast.Call)]
    return [flag for call in calls if not _is_bool(call) for flag in _flags_of(call)]


def own_flags(code: str) -> list[str]:
    """Return the same for the arguments of one call, without those of calls inside them."""
    tree = _parsed(code)
    call = tree.body[0].value if tree is not None and isinstance(tree.body[0], ast.Expr) else None
    return _flags_of(call) if isinstance(call, ast.Call) else []


def _flags_of(call: ast.Call) -> list[str]:
    return [ast.unparse(each) for each in (*call.keywords, *call.args) if _is_flag(each)]


def _is_flag(argument: ast.AST) -> bool:
    match argument:
        case ast.keyword(arg=name, value=value):
            return _is_flag(value) or (name in _FLAGS and isinstance(value, ast.Name))
        case ast.Compare() | ast.BoolOp() | ast.UnaryOp(op=ast.Not()):
            return True
        case ast.Call():
            return _is_bool(argument)
    return False


def _is_bool(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Name) and call.func.id == "bool"


def _reads(node: ast.AST, expression: str) -> bool:
    return any(isinstance(each, ast.expr) and ast.unparse(each) == expression for each in ast.walk(node))


def _parsed(code: str) -> ast.Module | None:
    for text in (code, f"{code} pass"):  # the line may only begin a statement
        try:
            return ast.parse(text)
        except SyntaxError:
            continue
    return None


def _deciding(tree: ast.Module) -> Iterator[ast.AST]:
    for node in ast.walk(tree):
        match node:
            case ast.For(iter=iterated) | ast.AsyncFor(iter=iterated) | ast.comprehension(iter=iterated):
                yield iterated
            case ast.While(test=test):
                yield test
            case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)) if name in _COUNTING:
                yield from node.args
