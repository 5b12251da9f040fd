"""Convert functions in the traced program from symbolic variables to Python functions that can be called at compile time.

Such a function is called a callback. It needs real values for its closure, its `self` and its defaults. A value that exists
only at run time is replaced by a stand-in, which `Conversion.stand_in` creates.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from types import CellType, FunctionType, MappingProxyType, MethodType, ModuleType
from typing import Any

from dynx._torch.cache.guard_failures import guard_source
from dynx._torch.tracing.render import is_tensor, show
from dynx._torch.tracing.variables import cell_content, is_kind, is_lazy, items_of, settled, untouched_value
from dynx.errors import ComptimeFailed

StandIn = Callable[[Any], Any]  # returns the compile-time stand-in of a symbolic variable
_UNKNOWN = object()
_MOST_OBJECTS = 2000  # searched for one that traced code has mutated


@dataclass
class Conversion:
    """A converter of symbolic variables to Python values, which records the values that were read without a guard."""

    tx: Any
    stand_in: StandIn
    unguarded: list[Any] = field(default_factory=list)
    cells: list[tuple[str, CellType, Any]] = field(default_factory=list)  # name, cell and initial content of closure variables
    _functions: dict[int, FunctionType] = field(default_factory=dict)

    def callback(self, variable: Any) -> Callable[..., Any]:
        """Convert the symbolic variable of a function, method, partial or callable object to a Python callable.

        Raises ComptimeFailed for a method of an object that does not exist yet, and for a value that is not callable.
        """
        variable = variable.realize()
        if is_kind(variable, "UserMethodVariable"):
            receiver = variable.im_self if hasattr(variable, "im_self") else variable.obj  # the former in 2.15
            owner = self._real(receiver.realize())
            if owner is _UNKNOWN:
                raise ComptimeFailed(
                    f"the method {variable.get_function().__qualname__} belongs to an object that the traced code creates, "
                    "which does not exist at compile time\n"
                    "  use a function, or create the object outside of the compiled function"
                )
            return MethodType(variable.get_function(), owner)
        if is_kind(variable, "NestedUserFunctionVariable"):
            return self._nested(variable)
        if is_kind(variable, "FunctoolsPartialVariable"):
            keywords = {name: self.value(argument) for name, argument in variable.keywords.items()}
            return functools.partial(self.callback(variable.func), *map(self.value, variable.args), **keywords)
        if is_kind(variable, "UserFunctionVariable"):
            return variable.get_function()
        real = self._real(variable)
        if not callable(real):
            raise ComptimeFailed(
                f"comptime() needs a function, not {show(self.tx, variable)}\n  write comptime(lambda ctx: ...)"
            )
        return real

    def value(self, variable: Any) -> Any:
        """Return a variable's Python value; a read-only copy or a stand-in if it is unknown, or mutated by traced code."""
        variable = settled(variable)
        if is_lazy(variable):
            value = untouched_value(variable)
            if not is_tensor(value):
                self.unguarded.append(variable)
                return value
            variable = variable.realize()
        if is_kind(variable, "NestedUserFunctionVariable"):
            return self._nested(variable)
        real = self._real(variable)
        if real is not _UNKNOWN and not is_tensor(real) and not self._is_changed(real):
            return real
        return self._contents(variable)

    def _contents(self, variable: Any) -> Any:
        """Return a read-only copy of a list, tuple or dict at this point of the trace; a stand-in for any other value."""
        items = items_of(variable)
        kind = _python_type(variable)
        if isinstance(items, list) and kind in (list, tuple):
            return tuple(map(self.value, items))
        if isinstance(items, dict) and kind is dict:
            return MappingProxyType({key.vt.as_python_constant(): self.value(item) for key, item in items.items()})
        return self.stand_in(variable)

    def _is_changed(self, real: Any) -> bool:
        """Return whether traced code has mutated an object that `real` references, so that `real` is out of date.

        Searches containers and instance dictionaries, up to `_MOST_OBJECTS`. Torch: `SideEffects.id_to_variable`.
        """
        side_effects = self.tx.output.side_effects
        changed = {address for address, variable in side_effects.id_to_variable.items() if side_effects.is_modified(variable)}
        todo: list[Any] = [real]
        seen: set[int] = set()
        while changed and todo and len(seen) < _MOST_OBJECTS:
            obj = todo.pop()
            if id(obj) in changed:
                return True
            if id(obj) not in seen:
                seen.add(id(obj))
                todo += _referenced_by(obj)
        return False

    def guard_what_was_read(self) -> None:
        """Add guards on all values that were converted without a guard, since the compiled code now depends on them."""
        from torch._dynamo.variables.lazy import LazyVariableTracker

        for variable in self.unguarded:
            LazyVariableTracker.realize_all(variable)
            _specialize(variable)
        self.unguarded.clear()

    def assigned(self) -> tuple[str, ...]:
        """Return the names of closure variables that converted functions assigned; traced code does not see the new values."""
        return tuple(name for name, cell, initial in self.cells if _content(cell) is not initial)

    def _real(self, variable: Any) -> Any:
        if is_kind(variable, "SymNodeVariable", "TensorVariable"):
            return _UNKNOWN
        source = variable.source
        side_effects = self.tx.output.side_effects
        if source is not None and not side_effects.has_pending_mutation(variable):
            return self._at(source)
        if items_of(variable) is not None and _python_type(variable) in (list, dict, set):
            return _UNKNOWN  # created or mutated in the trace: the caller returns its contents
        try:
            return variable.as_python_constant()
        except Exception:  # noqa: BLE001 - torch raises many kinds for a variable that is no constant
            return _UNKNOWN

    def _at(self, source: Any) -> Any:
        """Return the Python value of a Dynamo `Source`; `_UNKNOWN` if it cannot be evaluated.

        Torch: `OutputGraph.resolve_source_value` from 2.13 on; 2.11 has only the name of a source, an expression with L and G.
        """
        output = self.tx.output
        try:
            if hasattr(output, "resolve_source_value"):
                return output.resolve_source_value(source)
            return eval(guard_source(source), {"G": output.root_tx.f_globals, "L": output.root_tx.f_locals})
        except Exception:  # noqa: BLE001 - a source that only guards can evaluate
            return _UNKNOWN

    def _nested(self, variable: Any) -> FunctionType:
        created = self._functions.get(id(variable))
        if created is not None:
            return created
        code = variable.get_code()
        cells = tuple(CellType() for _ in code.co_freevars)
        function = FunctionType(code, variable.f_globals, variable.fn_name.as_python_constant(), closure=cells)
        self._functions[id(variable)] = function  # before its cells are filled: a function may close over itself
        for name, cell, cell_variable in zip(code.co_freevars, cells, variable.closure.items if cells else (), strict=True):
            content = cell_content(self.tx, cell_variable)
            if content is not None:
                cell.cell_contents = self.value(content)
            self.cells.append((name, cell, _content(cell)))
        if variable.defaults is not None:
            function.__defaults__ = tuple(map(self.value, variable.defaults.items))
        if variable.kwdefaults is not None:
            function.__kwdefaults__ = {
                key.vt.as_python_constant(): self.value(default) for key, default in variable.kwdefaults.items.items()
            }
        return function


def _specialize(variable: Any) -> None:
    """Guard on the values of all symbolic numbers in a variable and, if it is a container, in its items."""
    variable = settled(variable)
    if is_kind(variable, "SymNodeVariable"):
        variable.evaluate_expr()
    items = items_of(variable)
    for item in items.values() if isinstance(items, dict) else items or ():
        _specialize(item)


def _python_type(variable: Any) -> type | None:
    try:
        return variable.python_type()
    except NotImplementedError:
        return None


def _referenced_by(value: Any) -> list[Any]:
    if type(value) in (list, tuple, set, frozenset):
        return list(value)
    if type(value) is dict:
        return list(value.values())
    attributes = getattr(value, "__dict__", None)
    return list(attributes.values()) if type(attributes) is dict and not isinstance(value, (type, ModuleType)) else []


def _content(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return _UNKNOWN
