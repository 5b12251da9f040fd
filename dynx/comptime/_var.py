"""`ComptimeVar`: a value of the traced program, as far as it is known while it is being traced."""

from __future__ import annotations

from typing import Any

from dynx._torch.tracing.render import show
from dynx._torch.tracing.variables import example_of, is_dynamic, is_kind, settled, source_of
from dynx.errors import ComptimeFailed, NotConstant


class ComptimeVar:
    """A value of the traced program at one point of its trace.

    Of a tensor only dtype, sizes and device are known, not its data; of a number that is dynamic, its symbol. Has every
    method of `torch._dynamo.comptime.ComptimeVar`. Looking at a value that torch has not looked at yet adds the guard that
    using it in the program would add. A variable is valid until its callback ends; afterwards only its text is left.
    """

    def __init__(self, tx: Any, variable: Any) -> None:
        self._tx = tx
        self._variable = variable
        self._text: str | None = None

    def as_proxy(self) -> Any:
        """Give the `torch.fx.Proxy` of the value, or a list or tuple of them; raises where it is not in the graph."""
        return self._known().as_proxy()

    def is_proxy(self) -> bool:
        """Tell whether the value stands in the graph."""
        return bool(self._known().is_proxy())

    def as_fake(self) -> Any:
        """Give a FakeTensor or symbolic number that stands for the value. It must not be changed.

        Raises ComptimeFailed for a value that is neither a tensor nor a number of the graph.
        """
        example = example_of(self._known())
        if example is None:
            raise ComptimeFailed(f"{self!r} is not in the graph, so it has no fake value\n  use as_python_constant()")
        return example

    def size(self, dim: int | None = None) -> Any:
        """Give the sizes of a tensor, or one of them; a dynamic size is a SymInt."""
        return self.as_fake().size() if dim is None else self.as_fake().size(dim)

    def python_type(self) -> type:
        """Give what `type(value)` would be."""
        kind: type = self._known().python_type()
        return kind

    def as_python_constant(self) -> Any:
        """Give the Python value. It must not be changed. Raises NotConstant where it is known only at run time."""
        variable = self._known()
        try:
            return variable.as_python_constant()
        except NotImplementedError:
            raise NotConstant(
                f"{self!r} is not known before run time\n  of a dynamic number use .value, or force_static() to guard on it"
            ) from None

    def is_python_constant(self) -> bool:
        """Tell whether `as_python_constant` would succeed."""
        return bool(self._known().is_python_constant())

    def is_dynamic(self) -> bool:
        """Tell whether the value is a number that the graph computes with symbolically."""
        return is_dynamic(self._known())

    def is_tensor(self) -> bool:
        return is_kind(self._known(), "TensorVariable")

    def force_static(self) -> None:
        """Make a dynamic number a constant, by a guard on its value. Raises AssertionError for what is no number."""
        variable = self._known()
        if is_kind(variable, "SymNodeVariable"):
            variable.evaluate_expr()
        elif not variable.is_python_constant():
            raise AssertionError(f"cannot force {self!r} static")

    @property
    def value(self) -> Any:
        """The number or constant: a SymInt, SymFloat or SymBool for a dynamic number, else the Python value."""
        variable = self._known()
        return variable.sym_num if is_kind(variable, "SymNodeVariable") else self.as_python_constant()

    @property
    def source(self) -> str | None:
        """Where the value came from, as guards write it: `L['x']`; None for one that the program computed."""
        return source_of(self._held())

    def _i_will_not_complain_if_bc_breaks_VariableTracker(self) -> Any:  # noqa: N802 - torch's name
        """Give torch's own object, which changes from release to release."""
        return self._known()

    def __repr__(self) -> str:
        return show(self._tx, self._variable) if self._text is None else self._text

    # comparisons give what comparing the values gives: a SymBool for dynamic numbers, as `ctx.check` takes it

    def __lt__(self, other: Any) -> Any:
        return self.value < _plain(other)

    def __le__(self, other: Any) -> Any:
        return self.value <= _plain(other)

    def __gt__(self, other: Any) -> Any:
        return self.value > _plain(other)

    def __ge__(self, other: Any) -> Any:
        return self.value >= _plain(other)

    def __eq__(self, other: object) -> Any:
        if self is other or self._is_no_number():
            return self is other
        return self.value == _plain(other)

    def __ne__(self, other: object) -> Any:
        if self is other or self._is_no_number():
            return self is not other
        return self.value != _plain(other)

    def __bool__(self) -> bool:
        if self._is_no_number():
            raise NotConstant(f"{self!r} has no truth value before run time\n  ask for its type, sizes or identity instead")
        return bool(self.value)

    def _is_no_number(self) -> bool:
        variable = self._known()
        return not (is_kind(variable, "SymNodeVariable") or variable.is_python_constant())

    __hash__ = object.__hash__

    def _held(self) -> Any:
        if self._text is not None:
            raise ComptimeFailed(f"{self._text} was valid while its callback ran; it is over\n  use it inside of the callback")
        return self._variable

    def _known(self) -> Any:
        return settled(self._held().realize())

    def _end(self) -> None:
        """Keep only the text: nothing of torch stays alive because somebody kept this."""
        if self._text is None:
            self._text = show(self._tx, self._variable)
            self._tx = self._variable = None


def _plain(other: Any) -> Any:
    return other.value if isinstance(other, ComptimeVar) else other
