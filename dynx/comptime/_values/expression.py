"""Arithmetic and comparisons of dynamic numbers in a callback: they return unevaluated expressions for `ctx.check`.

Python converts the operand of `if`, `and`, `not` and the parts of `4 < n < 9` to a bool. torch would add a guard, or raise an
error far from the line, so an `Expression` converts only if the trace already implies the answer.
"""

from __future__ import annotations

import numbers
import operator
from collections.abc import Callable, MutableSet
from typing import Any, Final

import torch

from dynx._reading.user_location import location_of, user_location
from dynx._torch.tracing import shape_facts, translator
from dynx._torch.tracing.render import show_value
from dynx._torch.tracing.stack import tracing_stack
from dynx.errors import ComptimeFailed, NotConstant

_OPERATORS: Final[dict[str, Callable[..., Any]]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv, "//": operator.floordiv, "%": operator.mod,
    "**": operator.pow, "&": operator.and_, "|": operator.or_,
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "==": operator.eq, "!=": operator.ne,
}  # fmt: skip
# precedence of operators as in Python: an operand of lower precedence needs parentheses
_COMPARISON, _UNARY, _ATOM = 1, 8, 10
_STRENGTH: Final[dict[str, int]] = {"|": 2, "&": 4, "+": 6, "-": 6, "*": 7, "/": 7, "//": 7, "%": 7, "**": 9}


def _operator(symbol: str) -> Callable[[Any, Any], Any]:
    return lambda self, other: _combine(self, self, symbol, other)


def _reflected(symbol: str) -> Callable[[Any, Any], Any]:
    """Return the reflected method of an operator, such as `__radd__`, for a `Number` on the right of another object."""
    return lambda self, other: _combine(self, other, symbol, self)


class Number:
    """Base class of `ComptimeVar` and `Expression`: operators, which return Python values if all operands are constants."""

    _tx: Any
    _siblings: MutableSet[Any]  # objects that become invalid when the callback ends
    __array_ufunc__ = None  # makes numpy defer to the operators of this class

    @property
    def value(self) -> Any:
        """A SymInt, SymFloat or SymBool if the number is dynamic, else a Python value."""
        raise NotImplementedError

    def _has_value(self) -> bool:
        """Return whether `value` can be read: False for most objects that a ComptimeVar may represent, such as tensors."""
        return True

    def is_tensor(self) -> bool:
        """Return whether the value is a tensor."""
        return False

    __add__, __radd__ = _operator("+"), _reflected("+")
    __sub__, __rsub__ = _operator("-"), _reflected("-")
    __mul__, __rmul__ = _operator("*"), _reflected("*")
    __truediv__, __rtruediv__ = _operator("/"), _reflected("/")
    __floordiv__, __rfloordiv__ = _operator("//"), _reflected("//")
    __mod__, __rmod__ = _operator("%"), _reflected("%")
    __pow__, __rpow__ = _operator("**"), _reflected("**")
    __and__, __rand__ = _operator("&"), _reflected("&")
    __or__, __ror__ = _operator("|"), _reflected("|")
    __lt__, __le__, __gt__, __ge__ = _operator("<"), _operator("<="), _operator(">"), _operator(">=")

    def __divmod__(self, other: Any) -> Any:
        return self // other, self % other

    def __rdivmod__(self, other: Any) -> Any:
        return other // self, other % self

    def __eq__(self, other: object) -> Any:
        return True if self is other else _combine(self, self, "==", other)

    def __ne__(self, other: object) -> Any:
        return False if self is other else _combine(self, self, "!=", other)

    __hash__ = object.__hash__

    def __neg__(self) -> Any:
        return _apply(self, "-", operator.neg)

    def __pos__(self) -> Any:
        return _apply(self, "+", operator.pos)

    def __abs__(self) -> Any:
        return _apply(self, "abs", abs)

    def __invert__(self) -> Any:
        return _apply(self, "~", lambda raw: torch.sym_not(raw) if isinstance(raw, torch.SymBool) else ~raw)

    def __bool__(self) -> bool:
        raw = _raw(self, self)
        return bool(self._settled(shape_facts.known(raw)) if _is_symbolic(raw) else raw)

    def __int__(self) -> int:
        return int(self._constant())

    def __float__(self) -> float:
        return float(self._constant())

    def __index__(self) -> int:
        return operator.index(self._constant())

    def _constant(self) -> Any:
        raw = _raw(self, self)
        return self._settled(shape_facts.constant_of(raw)) if _is_symbolic(raw) else raw

    def _settled(self, known: Any) -> Any:
        """Return `known`, the value that the trace already implies for this number; raise NotConstant if `known` is None."""
        if known is not None:
            return known
        unbacked = shape_facts.is_unbacked(self.value)
        advice = "its value is known only at run time" if unbacked else "bool((...).value) evaluates it and adds a guard"
        raise NotConstant(
            f"{self!r} is not evaluated while tracing, so it cannot be used as a bool or a plain number\n"
            f"  at {traced_line(self._tx)}\n"
            f"  to assert it, pass it to ctx.check(...), with two checks for a < b < c, and & for `and`; {advice}"
        )


class Expression(Number):
    """A dynamic number or a condition that a callback has computed, for `ctx.check`, `ctx.assume` and `ctx.constrain`.

    Valid until the callback ends; after that only its text (`repr`) is left.
    """

    def __init__(self, of: Number, value: Any, text: str, strength: int, parts: tuple[Any, ...]) -> None:
        self._tx, self._siblings = of._tx, of._siblings
        self._value, self._text, self._strength = value, text, strength
        self._parts = parts  # conditions whose conjunction is equivalent to this condition
        self._siblings.add(self)

    @property
    def value(self) -> Any:
        """The SymInt, SymFloat or SymBool; converting it to a Python number guards on it, as torch does."""
        if self._tx is None:
            raise ComptimeFailed(
                f"the value of {self._text} is used after its callback has ended\n  use it inside the callback"
            )
        return self._value

    def __repr__(self) -> str:
        return self._text

    def _end(self) -> None:
        self._tx = self._value = None
        self._parts = ()
        self._siblings = set()


def traced_line(tx: Any) -> str:
    """Return the line of user code being traced; inside a helper of dynx such as `comptime.print`, the line that called it."""
    return str(user_location(tracing_stack()) or location_of(translator.location(tx)))


def plain(operand: Any) -> Any:
    """Return the value of a `ComptimeVar` or `Expression`; return any other object unchanged."""
    return operand.value if isinstance(operand, Number) else operand


def conjuncts(condition: Any) -> tuple[Any, ...]:
    """Return the conditions that `&` combines in `condition`, to be asserted one by one: torch infers nothing from a `&`."""
    return condition._parts if isinstance(condition, Expression) else (plain(condition),)


def _combine(of: Number, left: Any, symbol: str, right: Any) -> Any:
    """Apply the operator `symbol` to `left` and `right`; return an `Expression` if the result is dynamic.

    `of` is the operand whose operator method was called.
    """
    if symbol in ("==", "!=") and not _are_comparable(left, right):
        return symbol == "!="
    first, second = _raw(of, left), _raw(of, right)
    if not _is_symbolic(first) and not _is_symbolic(second):
        return _OPERATORS[symbol](first, second)
    for operand, raw in ((left, first), (right, second)):
        if not _is_symbolic(raw) and not isinstance(raw, (int, float, complex)):
            if symbol in ("==", "!="):
                return symbol == "!="
            raise _not_a_number(of, operand)
    _require_same_kind(of, (left, right), symbol)
    strength = _STRENGTH.get(symbol, _COMPARISON)
    # `a - (b - c)` needs its parentheses, `(a - b) - c` does not; powers group from the right
    least_left, least_right = (_ATOM, _UNARY) if symbol == "**" else (strength + (strength == _COMPARISON), strength + 1)
    text = f"{_text(left, least_left)} {symbol} {_text(right, least_right)}"
    if symbol == "**" and isinstance(second, torch.SymInt) and not isinstance(first, (float, complex, torch.SymFloat)):
        _require_known_sign(of, second, text)
    parts = conjuncts(left) + conjuncts(right) if symbol == "&" else None
    return _wrap(of, _OPERATORS[symbol](first, second), text, strength, parts)


def _apply(of: Number, symbol: str, function: Callable[[Any], Any]) -> Any:
    raw = _raw(of, of)
    if symbol != "~":
        _require_same_kind(of, (of,), symbol)
    text, strength = (f"abs({of!r})", _ATOM) if symbol == "abs" else (f"{symbol}{_text(of, _UNARY)}", _UNARY)
    return _wrap(of, function(raw), text, strength)


def _wrap(of: Number, result: Any, text: str, strength: int, parts: tuple[Any, ...] | None = None) -> Any:
    return Expression(of, result, text, strength, parts or (result,)) if _is_symbolic(result) else result


def _are_comparable(left: Any, right: Any) -> bool:
    """Return whether `left == right` compares values; otherwise it compares identity.

    True also if one operand is a tensor and the other a dynamic number: the comparison itself then raises NotConstant.
    """
    without_value = [operand for operand in (left, right) if not _has_value(operand)]
    return not without_value or (any(map(_is_tensor, without_value)) and (_is_dynamic(left) or _is_dynamic(right)))


def _has_value(operand: Any) -> bool:
    return operand._has_value() if isinstance(operand, Number) else not isinstance(operand, torch.Tensor)


def _is_tensor(operand: Any) -> bool:
    return operand.is_tensor() if isinstance(operand, Number) else isinstance(operand, torch.Tensor)


def _is_dynamic(operand: Any) -> bool:
    return _has_value(operand) and _is_symbolic(plain(operand))


def _raw(of: Number, operand: Any) -> Any:
    """Return the value of `operand`, other real numbers, such as NumPy's, as int or float; raise NotConstant if it has none."""
    if not _has_value(operand):
        raise _not_a_number(of, operand)
    raw = plain(operand)
    if _is_symbolic(raw) or isinstance(raw, (int, float, complex)):
        return raw
    if isinstance(raw, numbers.Integral):
        return operator.index(raw)
    return float(raw) if isinstance(raw, numbers.Real) else raw


def _is_symbolic(value: object) -> bool:
    return isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool))


def _not_a_number(of: Number, operand: Any) -> NotConstant:
    shown = repr(operand) if isinstance(operand, Number) else show_value(operand)
    instead = (
        "use its sizes, such as ctx.local('x').size(0), or call .item() on it in the traced code"
        if _is_tensor(operand)
        else "use a number: an attribute or item of it that the traced code assigns to a variable"
    )
    return NotConstant(
        f"{shown} is not a number, so it cannot be compared, calculated with or used as a bool while tracing\n"
        f"  at {traced_line(of._tx)}\n  {instead}"
    )


def _require_same_kind(of: Number, operands: tuple[Any, ...], symbol: str) -> None:
    """Raise NotConstant if an operand is a SymBool and `symbol` needs numbers: torch would guard on the SymBool."""
    conditions = [isinstance(plain(operand), (bool, torch.SymBool)) for operand in operands]
    if symbol in ("&", "|") and (all(conditions) or not any(conditions)):
        return
    for operand in operands:
        if isinstance(plain(operand), torch.SymBool):
            raise NotConstant(
                f"cannot apply {symbol} to the condition {operand!r}: torch would guard on it to make it a number\n"
                f"  at {traced_line(of._tx)}\n"
                "  combine conditions with &, | and ~"
            )


def _require_known_sign(of: Number, exponent: Any, text: str) -> None:
    """Raise ComptimeFailed if torch would guard on the sign of an exponent, which decides the type of the result."""
    if shape_facts.known(exponent >= 0) is None:
        raise ComptimeFailed(
            f"the exponent of {text} may be negative, which makes the result a float\n"
            f"  at {traced_line(of._tx)}\n"
            "  assert its sign first: ctx.check(exponent >= 0)"
        )


def _text(operand: Any, least: int) -> str:
    """Return the text of an operand, in parentheses if the precedence of its operator is lower than `least`."""
    if isinstance(operand, Expression):
        text, strength = repr(operand), operand._strength
    else:
        text = shape_facts.text_of(plain(operand)) or repr(plain(operand))
        strength = _ATOM if text.isalnum() or text.replace(".", "").isalnum() else _STRENGTH["|"]
    return f"({text})" if strength < least else text
