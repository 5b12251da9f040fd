"""Facts about symbolic numbers that traced code promises, and guards of the user's own.

Torch: `SymNode.expect_true`, `ShapeEnv.axioms`, `constrain_range`, and `GuardManager.add_lambda_guard` on the root of the
guard tree; alike in 2.11, 2.13 and 2.15.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import torch
from torch._dynamo.guards import install_guard
from torch._dynamo.source import GlobalStateSource
from torch._guards import Guard
from torch.fx.experimental.symbolic_shapes import constrain_range, is_concrete_bool

_ASSERTION = re.compile(r"^Runtime assertion failed for expression (?P<expr>.*) on node '")


def is_condition(value: object) -> bool:
    return isinstance(value, (bool, torch.SymBool))


def holds_now(condition: Any) -> bool | None:
    """Decide a condition without a guard: True, False, or None where only run time can tell.

    A size that is known in this call decides by its hint.
    """
    if is_concrete_bool(condition):
        return bool(condition)
    hint = getattr(condition.node, "_hint", None)
    if hint is not None:
        return bool(hint)
    static = condition.node.maybe_as_bool()
    return None if static is None else bool(static)


def promise(tx: Any, condition: Any, file: str, line: int, message: str) -> None:
    """Have the condition hold: a guard where all numbers are known in this call, else an assertion in the graph.

    Torch writes its own text into the assertion; `message` takes its place before the backend sees the graph.
    """
    if is_concrete_bool(condition):
        return
    node = condition.node
    symbols = list(node.expr.free_symbols)
    before = _ranges(node.shape_env, symbols)
    expressions = _written(node)
    node.expect_true(file, line)
    _explain_assertions(tx, expressions | _written(node) | _moved(node.shape_env, symbols, before), message)


def suppose(condition: Any) -> None:
    """Have the shape environment take the condition for true, without a guard and without an assertion."""
    if is_concrete_bool(condition):
        return
    shape_env = condition.node.shape_env
    expression = shape_env.simplify(condition.node.expr)
    for known, value in shape_env.get_implications(expression):
        shape_env.axioms[known] = value
    shape_env._update_version_counter()


def bound(tx: Any, number: Any, low: int | None, high: int | None, message: str) -> None:
    """Bound an unbacked number; torch asserts it at run time."""
    shape_env, symbols = number.node.shape_env, list(number.node.expr.free_symbols)
    before = _ranges(shape_env, symbols)
    constrain_range(number, min=low, max=high)
    _explain_assertions(tx, _moved(shape_env, symbols, before), message)


def symbols_of(*numbers: object) -> frozenset[Any]:
    """Give the symbols that sizes are made of; none for plain numbers.

    Torch: `SymNode.expr`, alike in 2.11, 2.13 and 2.15.
    """
    symbolic = (each for each in numbers if isinstance(each, (torch.SymInt, torch.SymFloat, torch.SymBool)))
    return frozenset(symbol for each in symbolic for symbol in each.node.expr.free_symbols)


def is_unbacked(number: Any) -> bool:
    from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

    return bool(free_unbacked_symbols(number))


def guard_on(tx: Any, name: str, question: Callable[[], Any], answer: Any, text: str) -> None:
    """Compile anew whenever `question()` is not equal to `answer`, what it gave at compile time."""

    def unchanged(frame_locals: Any) -> bool:
        return bool(question() == answer)

    def DYNX_GUARD(builder: Any, guard: Any) -> None:  # noqa: N802 - shown beside torch's own
        code = [f"___dynx_guard({name!r}) == {text}"]
        guard.set_export_info("DYNX_GUARD", None, code, None)
        stack = "".join(guard.user_stack.format()) if guard.user_stack else ""
        where = [code[0] + (f"\nUser stack trace:\n{stack}" if stack else "")]
        builder.guard_manager.root.add_lambda_guard(unchanged, where, guard.user_stack)

    install_guard(Guard(GlobalStateSource(), DYNX_GUARD))


def _written(node: Any) -> set[str]:
    """Write a condition in the forms into which torch may turn it."""
    from torch.fx.experimental.symbolic_shapes import canonicalize_bool_expr

    return {str(canonicalize_bool_expr(node.expr)), str(node.expr)}


def _ranges(shape_env: Any, symbols: list[Any]) -> dict[Any, Any]:
    return {symbol: shape_env.var_to_range[symbol] for symbol in symbols if symbol in shape_env.var_to_range}


def _moved(shape_env: Any, symbols: list[Any], before: dict[Any, Any]) -> set[str]:
    """Write the bounds that a promise has moved, as torch asserts them: whoever moved a bound last answers for it."""
    found = set()
    for symbol, now in _ranges(shape_env, symbols).items():
        then = before.get(symbol)
        if then is None or now.lower != then.lower:
            found.add(f"{symbol} >= {now.lower}")
        if then is None or now.upper != then.upper:
            found.add(f"{symbol} <= {now.upper}")
    return found


def _explain_assertions(tx: Any, expressions: set[str], message: str) -> None:
    """Put `message` into the assertions that torch makes of a promise, when it hands the graph to the backend.

    The attribute is set on the one `OutputGraph` of this attempt and goes with it.
    """
    output = tx.output
    compile_graph = output.call_user_compiler

    def call_user_compiler(graph_module: Any, *args: Any, **kwargs: Any) -> Any:
        for node in graph_module.graph.nodes:
            text = node.args[1] if "_assert_scalar" in str(node.target) and len(node.args) > 1 else None
            match = _ASSERTION.match(text) if isinstance(text, str) else None
            if match is not None and match["expr"] in expressions:
                node.args = (node.args[0], f"{message}  [{match['expr']}]")
        graph_module.recompile()
        return compile_graph(graph_module, *args, **kwargs)

    output.call_user_compiler = call_user_compiler
