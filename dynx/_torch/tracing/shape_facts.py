"""Assert or assume conditions on symbolic numbers in traced code, and add custom guards.

Torch: `SymNode.expect_true`, `ShapeEnv.axioms`, `constrain_range`, and `GuardManager.add_lambda_guard` on the root of the guard
tree.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from typing import Any

import torch
from torch._dynamo.guards import install_guard
from torch._dynamo.source import GlobalStateSource
from torch._guards import Guard
from torch.fx.experimental.symbolic_shapes import constrain_range, is_concrete_bool, statically_known_true
from torch.utils._sympy.functions import Mod, PythonMod
from torch.utils._sympy.interp import sympy_interp
from torch.utils._sympy.reference import OptimizedPythonReferenceAnalysis

from dynx._torch.tracing.translator import before_backend

_ASSERTION = re.compile(r"^Runtime assertion failed for expression (?P<expr>.*) on node '")


def is_condition(value: object) -> bool:
    """Return whether a value is a bool or a symbolic bool."""
    return isinstance(value, (bool, torch.SymBool))


def holds_now(condition: Any) -> bool | None:
    """Return whether a symbolic condition holds in the call being compiled; None if known only at run time. Adds no guard.

    Backed symbols have the value of their hint.
    """
    if is_concrete_bool(condition):
        return bool(condition)
    hint = getattr(condition.node, "_hint", None)
    if hint is not None:
        return bool(hint)
    static = condition.node.maybe_as_bool()
    return None if static is None else bool(static)


def known(number: Any) -> bool | None:
    """Return whether a symbolic condition holds, or a symbolic number is nonzero, if torch can prove it; else None.

    Torch: `statically_known_true`; it uses ranges and axioms, never a hint, and adds no guard.
    """
    holds = number if isinstance(number, torch.SymBool) else number != 0
    if is_concrete_bool(holds) or statically_known_true(holds):
        return bool(holds)
    return False if statically_known_true(torch.sym_not(holds)) else None


def constant_of(number: Any) -> int | float | bool | None:
    """Return the value of a symbolic number that is a constant; None if it has free symbols."""
    expression = number.node.expr
    if expression.free_symbols:
        return None
    kind: type[int | float | bool] = {torch.SymInt: int, torch.SymFloat: float, torch.SymBool: bool}[type(number)]
    return kind(expression)


def text_of(value: Any) -> str | None:
    """Return the expression of a symbolic number as text; None for any other value."""
    return str(value.node.expr) if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)) else None


def values_now(number: Any) -> dict[str, Any]:
    """Return the values of a symbolic number's backed symbols in the call being compiled, by symbol name."""
    if not isinstance(number, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        return {}
    hints = number.node.shape_env.backed_var_to_val
    return {str(symbol): hints[symbol] for symbol in sorted(number.node.expr.free_symbols, key=str) if symbol in hints}


def can_assert(condition: Any) -> bool:
    """Return whether torch can compute a condition in the graph, which a runtime assertion requires.

    Torch: `insert_deferred_runtime_asserts` interprets the expression with proxies, which fails for the true division of
    integers in 2.11, 2.13 and 2.15.
    """
    if is_concrete_bool(condition):
        return True
    expression = condition.node.expr
    graph = torch.fx.Graph()
    tracer = torch.fx.proxy.GraphAppendingTracer(graph)
    proxies = {symbol: torch.fx.Proxy(graph.placeholder(str(symbol)), tracer) for symbol in expression.free_symbols}
    logger = logging.getLogger(sympy_interp.__module__)
    logger.addFilter(_no_message)  # torch logs a warning if it cannot compute the condition
    try:
        sympy_interp(OptimizedPythonReferenceAnalysis, proxies, expression)
    except Exception:  # noqa: BLE001 - whatever an operator raises for a proxy
        return False
    finally:
        logger.removeFilter(_no_message)
    return True


def _no_message(record: logging.LogRecord) -> bool:
    return False


def promise(tx: Any, condition: Any, file: str, line: int, message: str) -> None:
    """Enforce a symbolic condition: by a guard if all its symbols are backed, else by a runtime assertion in the graph.

    `message` replaces torch's text of the assertion before the backend gets the graph. A condition that is a constant, even
    False, is ignored: the caller has evaluated it.
    """
    if is_concrete_bool(condition):
        return
    node = condition.node
    symbols = list(node.expr.free_symbols)
    before = _ranges(node.shape_env, symbols)
    expressions = _texts_of(node)
    node.expect_true(file, line)
    _assume_remainder(node.shape_env, node.expr)
    _explain_assertions(tx, expressions | _texts_of(node) | _changed_bounds(node.shape_env, symbols, before), message)


def suppose(condition: Any) -> None:
    """Make the `ShapeEnv` assume that a symbolic condition holds, without a guard or runtime assertion."""
    if is_concrete_bool(condition):
        return
    _assume(condition.node.shape_env, condition.node.expr)
    _assume_remainder(condition.node.shape_env, condition.node.expr)


def _assume(shape_env: Any, expression: Any) -> None:
    for implied, value in shape_env.get_implications(shape_env.simplify(expression)):
        shape_env.axioms[implied] = value
    shape_env._update_version_counter()


def _assume_remainder(shape_env: Any, expression: Any) -> None:
    """If a condition contains the remainder function `PythonMod`, also assume the same condition with `Mod` instead.

    Torch: a remainder is a `Mod` if both operands are known to be nonnegative, else a `PythonMod`; torch does not derive a
    fact about one from a fact about the other.
    """
    if expression.has(PythonMod):
        _assume(shape_env, expression.replace(PythonMod, Mod))


def bound(tx: Any, number: Any, low: int | None, high: int | None, message: str) -> None:
    """Constrain an unbacked symbol to the inclusive range from `low` to `high`, which torch asserts at run time.

    None stands for no bound. `message` replaces torch's text of the assertion.
    """
    shape_env, symbols = number.node.shape_env, list(number.node.expr.free_symbols)
    before = _ranges(shape_env, symbols)
    constrain_range(number, min=low, max=high)
    _explain_assertions(tx, _changed_bounds(shape_env, symbols, before), message)


def symbols_of(*numbers: object) -> frozenset[Any]:
    """Return the free symbols of symbolic numbers such as sizes; plain numbers have none. Torch: `SymNode.expr`."""
    symbolic = (number for number in numbers if isinstance(number, (torch.SymInt, torch.SymFloat, torch.SymBool)))
    return frozenset(symbol for number in symbolic for symbol in number.node.expr.free_symbols)


def is_unbacked(number: Any) -> bool:
    """Return whether a symbolic number contains unbacked symbols."""
    from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

    return bool(free_unbacked_symbols(number))


def is_unbacked_symbol(number: Any) -> bool:
    """Return whether a number is one unbacked symbol and no expression; torch's `constrain_range` ignores expressions."""
    return is_unbacked(number) and bool(number.node.expr.is_Symbol)


def guard_on(tx: Any, name: str, read: Callable[[], Any], expected: Any, text: str) -> None:
    """Add a guard that calls `read()` and fails when the result differs from `expected`, the result at compile time.

    In the guard tree and torch's logs, the guard appears as `___dynx_guard('name') == text`: `text` describes `expected`.
    """

    def unchanged(frame_locals: Any) -> bool:
        return bool(read() == expected)

    def DYNX_GUARD(builder: Any, guard: Any) -> None:  # noqa: N802 - the guard's type in logs, spelled as torch's
        code = [f"___dynx_guard({name!r}) == {text}"]
        guard.set_export_info("DYNX_GUARD", None, code, None)
        stack = "".join(guard.user_stack.format()) if guard.user_stack else ""
        verbose = [code[0] + (f"\nUser stack trace:\n{stack}" if stack else "")]
        builder.guard_manager.root.add_lambda_guard(unchanged, verbose, guard.user_stack)

    install_guard(Guard(GlobalStateSource(), DYNX_GUARD))


def _texts_of(node: Any) -> set[str]:
    """Return the texts by which the runtime assertion of a condition (`node`) may show the condition."""
    from torch.fx.experimental.symbolic_shapes import canonicalize_bool_expr

    return {str(canonicalize_bool_expr(node.expr)), str(node.expr)}


def _ranges(shape_env: Any, symbols: list[Any]) -> dict[Any, Any]:
    return {symbol: shape_env.var_to_range[symbol] for symbol in symbols if symbol in shape_env.var_to_range}


def _changed_bounds(shape_env: Any, symbols: list[Any], before: dict[Any, Any]) -> set[str]:
    """Return the bounds that are new since `before`, as torch writes them in runtime assertions, for example `u0 >= 2`."""
    bounds = set()
    for symbol, now in _ranges(shape_env, symbols).items():
        old = before.get(symbol)
        if old is None or now.lower != old.lower:
            bounds.add(f"{symbol} >= {now.lower}")
        if old is None or now.upper != old.upper:
            bounds.add(f"{symbol} <= {now.upper}")
    return bounds


def _explain_assertions(tx: Any, expressions: set[str], message: str) -> None:
    """Replace torch's text by `message` in the runtime assertions of these expressions, before the backend gets the graph."""

    def explain(graph_module: Any) -> None:
        for node in graph_module.graph.nodes:
            text = node.args[1] if "_assert_scalar" in str(node.target) and len(node.args) > 1 else None
            match = _ASSERTION.match(text) if isinstance(text, str) else None
            if match is not None and match["expr"] in expressions:
                node.args = (node.args[0], f"{message}  [{match['expr']}]")
        graph_module.recompile()

    before_backend(tx.output, explain)
