"""`ComptimeVar`: a value of the traced program as Dynamo knows it at compile time."""

from __future__ import annotations

from collections.abc import MutableSet
from typing import Any

from dynx._torch.tracing.render import show
from dynx._torch.tracing.variables import example_of, is_dynamic, is_kind, settled, source_of
from dynx.comptime._values.expression import Number
from dynx.errors import ComptimeFailed, NotConstant


class ComptimeVar(Number):
    """A value of the traced program at one line, as Dynamo knows it at compile time.

    For a tensor only dtype, sizes and device are known, not its data; for a dynamic number, its symbol. It has every method of
    `torch._dynamo.comptime.ComptimeVar`. Reading a value that Dynamo has not realized yet adds the guard that using the value
    in the program would add. A variable is valid until its callback ends; after that only its text (`repr`) is left, and
    everything else raises ComptimeFailed.

    Arithmetic and comparisons of constants return Python values. With a dynamic number they return an unevaluated expression
    for `ctx.check`, `ctx.assume` and `ctx.constrain`: `ctx.check(ctx.local("n") % 2 == 0)`. `&`, `|` and `~` combine
    conditions. Used as a bool, a dynamic number or condition raises NotConstant, unless the answer needs no guard.
    """

    def __init__(self, tx: Any, variable: Any, siblings: MutableSet[Any]) -> None:
        self._tx = tx
        self._siblings = siblings
        self._variable = variable
        self._text: str | None = None
        siblings.add(self)

    def as_proxy(self) -> Any:
        """Return the `torch.fx.Proxy` of the value, or a list or tuple of them; raise if the value is not in the graph."""
        return self._realized().as_proxy()

    def is_proxy(self) -> bool:
        """Return whether `as_proxy` would succeed."""
        return bool(self._realized().is_proxy())

    def as_fake(self) -> Any:
        """Return the FakeTensor or symbolic number that represents the value; it must not be modified.

        Raises:
            ComptimeFailed: the value is neither a tensor nor a number of the graph.
        """
        example = example_of(self._realized())
        if example is None:
            raise ComptimeFailed(f"{self!r} is not in the graph, so it has no fake value\n  use as_python_constant()")
        return example

    def size(self, dim: int | None = None) -> Any:
        """Return the sizes of a tensor, or the size of dimension `dim`; a dynamic size is a SymInt."""
        return self.as_fake().size() if dim is None else self.as_fake().size(dim)

    def python_type(self) -> type:
        """Return the type of the value at run time."""
        kind: type = self._realized().python_type()
        return kind

    def as_python_constant(self) -> Any:
        """Return the value of a compile-time constant as a Python object, which must not be modified.

        Raises:
            NotConstant: the value is known only at run time.
        """
        variable = self._realized()
        try:
            return variable.as_python_constant()
        except NotImplementedError:
            raise NotConstant(
                f"{self!r} is not known before run time, so it has no Python constant\n"
                "  for a dynamic number use .value, or force_static() to guard on it"
            ) from None

    def is_python_constant(self) -> bool:
        """Return whether `as_python_constant` would succeed."""
        return bool(self._realized().is_python_constant())

    def is_dynamic(self) -> bool:
        """Return whether the value is a dynamic number, which the graph represents by a symbol."""
        return is_dynamic(self._realized())

    def is_tensor(self) -> bool:
        """Return whether the value is a tensor."""
        return is_kind(self._realized(), "TensorVariable")

    def force_static(self) -> None:
        """Specialize a dynamic number: make it a constant, with a guard on its value.

        Raises:
            AssertionError: the value is neither a number nor a constant.
        """
        variable = self._realized()
        if is_kind(variable, "SymNodeVariable"):
            variable.evaluate_expr()
        elif not variable.is_python_constant():
            raise AssertionError(f"cannot force {self!r} static: it is neither a number nor a constant")

    @property
    def value(self) -> Any:
        """The value of a number or constant: a SymInt, SymFloat or SymBool if it is dynamic, else the Python value."""
        variable = self._realized()
        return variable.sym_num if is_kind(variable, "SymNodeVariable") else self.as_python_constant()

    @property
    def source(self) -> str | None:
        """The expression by which guards find the value, such as `L['x']`; None for a value that the program computed."""
        return source_of(self._unrealized())

    def _i_will_not_complain_if_bc_breaks_VariableTracker(self) -> Any:  # noqa: N802 - torch's name
        """Return torch's private `VariableTracker`, whose interface may change in any release of torch."""
        return self._realized()

    def __repr__(self) -> str:
        return show(self._tx, self._variable) if self._text is None else self._text

    def _has_value(self) -> bool:
        """Return whether `value` can be read: True for a dynamic number or a constant, False for a tensor, for example."""
        variable = self._realized()
        return is_kind(variable, "SymNodeVariable") or variable.is_python_constant()

    def _unrealized(self) -> Any:
        """Return torch's VariableTracker without realizing it; raise ComptimeFailed after the callback has ended."""
        if self._text is not None:
            raise ComptimeFailed(
                f"the ComptimeVar {self._text} is used after its callback has ended\n  use it inside the callback"
            )
        return self._variable

    def _realized(self) -> Any:
        """Realize torch's VariableTracker, which may install a guard, and return it."""
        return settled(self._unrealized().realize())

    def _end(self) -> None:
        """Invalidate this variable and keep only its text, so that it keeps no torch object alive after its callback."""
        if self._text is None:
            self._text = show(self._tx, self._variable)
            self._tx = self._variable = None
            self._siblings = set()
