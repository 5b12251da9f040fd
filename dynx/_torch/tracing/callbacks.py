"""A function of the traced program, made callable while it is being traced.

Dynamo knows a callback as a symbolic variable. Calling it for real needs real values for what it closes over, its `self` and
its defaults; where there is none, because a value exists only at run time, it gets a stand-in that the caller provides.
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

StandIn = Callable[[Any], Any]  # makes a compile-time stand-in of a symbolic variable
_UNKNOWN = object()
_MOST_OBJECTS = 2000  # looked at to find one that the trace has changed


@dataclass
class Conversion:
    """Turns symbolic variables into Python values; remembers what was read without a guard."""

    tx: Any
    stand_in: StandIn
    unguarded: list[Any] = field(default_factory=list)
    cells: list[tuple[str, CellType, Any]] = field(default_factory=list)  # what callbacks close over, as they got it
    _functions: dict[int, FunctionType] = field(default_factory=dict)

    def callback(self, variable: Any) -> Callable[..., Any]:
        """Make a function, method, partial or callable object callable. Raises ComptimeFailed where it has no real self."""
        variable = variable.realize()
        if is_kind(variable, "UserMethodVariable"):
            receiver = variable.im_self if hasattr(variable, "im_self") else variable.obj  # 2.15, and before
            owner = self._real(receiver.realize())
            if owner is _UNKNOWN:
                raise ComptimeFailed(
                    f"the method {variable.get_function().__qualname__} belongs to an object that the traced code makes: "
                    "it does not exist yet\n  use a function, or make the object outside of the compiled function"
                )
            return MethodType(variable.get_function(), owner)
        if is_kind(variable, "NestedUserFunctionVariable"):
            return self._nested(variable)
        if is_kind(variable, "FunctoolsPartialVariable"):
            keywords = {name: self.value(each) for name, each in variable.keywords.items()}
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
        """Give the real value where it is known at compile time and the traced code has not changed it, else a stand-in."""
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
        """Give what a container holds at this point of the trace, as one that cannot be changed: nobody would see it."""
        items = items_of(variable)
        kind = _python_type(variable)
        if isinstance(items, list) and kind in (list, tuple):
            return tuple(map(self.value, items))
        if isinstance(items, dict) and kind is dict:
            return MappingProxyType({key.vt.as_python_constant(): self.value(each) for key, each in items.items()})
        return self.stand_in(variable)

    def _is_changed(self, real: Any) -> bool:
        """Tell whether the trace has changed an object that a value holds: the real one would be out of date.

        Torch: `SideEffects.id_to_variable` knows objects by id. Looks through containers and instance dictionaries.
        """
        side_effects = self.tx.output.side_effects
        changed = {each for each, variable in side_effects.id_to_variable.items() if side_effects.is_modified(variable)}
        todo: list[Any] = [real]
        seen: set[int] = set()
        while changed and todo and len(seen) < _MOST_OBJECTS:
            each = todo.pop()
            if id(each) in changed:
                return True
            if id(each) not in seen:
                seen.add(id(each))
                todo += _held_by(each)
        return False

    def guard_what_was_read(self) -> None:
        """Guard on every value given without one: from now on the compiled code depends on them."""
        from torch._dynamo.variables.lazy import LazyVariableTracker

        for variable in self.unguarded:
            LazyVariableTracker.realize_all(variable)
            _pin(variable)
        self.unguarded.clear()

    def assigned(self) -> tuple[str, ...]:
        """Name the closed-over variables to which a callback has assigned; the traced code does not see it."""
        return tuple(name for name, cell, given in self.cells if _content(cell) is not given)

    def _real(self, variable: Any) -> Any:
        if is_kind(variable, "SymNodeVariable", "TensorVariable"):
            return _UNKNOWN
        source = variable.source
        side_effects = self.tx.output.side_effects
        if source is not None and not side_effects.has_pending_mutation(variable):
            return self._at(source)
        if items_of(variable) is not None and _python_type(variable) in (list, dict, set):
            return _UNKNOWN  # made in the trace, or changed there: the caller gets what it holds
        try:
            return variable.as_python_constant()
        except Exception:  # noqa: BLE001 - torch raises many kinds for a variable that is no constant
            return _UNKNOWN

    def _at(self, source: Any) -> Any:
        """Torch: `OutputGraph.resolve_source_value` (2.13); 2.11 has only the source's name, an expression over L and G."""
        output = self.tx.output
        try:
            if hasattr(output, "resolve_source_value"):
                return output.resolve_source_value(source)
            return eval(guard_source(source), {"G": output.root_tx.f_globals, "L": output.root_tx.f_locals})
        except Exception:  # noqa: BLE001 - a source that only guards can follow
            return _UNKNOWN

    def _nested(self, variable: Any) -> FunctionType:
        known = self._functions.get(id(variable))
        if known is not None:
            return known
        code = variable.get_code()
        cells = tuple(CellType() for _ in code.co_freevars)
        function = FunctionType(code, variable.f_globals, variable.fn_name.as_python_constant(), closure=cells)
        self._functions[id(variable)] = function  # before its cells: a function may close over itself
        for name, cell, held in zip(code.co_freevars, cells, variable.closure.items if cells else (), strict=True):
            content = cell_content(self.tx, held)
            if content is not None:
                cell.cell_contents = self.value(content)
            self.cells.append((name, cell, _content(cell)))
        if variable.defaults is not None:
            function.__defaults__ = tuple(map(self.value, variable.defaults.items))
        if variable.kwdefaults is not None:
            function.__kwdefaults__ = {
                key.vt.as_python_constant(): self.value(each) for key, each in variable.kwdefaults.items.items()
            }
        return function


def _pin(variable: Any) -> None:
    """Make dynamic numbers constants: the callback has seen the value."""
    variable = settled(variable)
    if is_kind(variable, "SymNodeVariable"):
        variable.evaluate_expr()
    items = items_of(variable)
    for item in items.values() if isinstance(items, dict) else items or ():
        _pin(item)


def _python_type(variable: Any) -> type | None:
    try:
        kind: type = variable.python_type()
    except NotImplementedError:
        return None
    return kind


def _held_by(value: Any) -> list[Any]:
    if type(value) in (list, tuple, set, frozenset):
        return list(value)
    if type(value) is dict:
        return list(value.values())
    own = getattr(value, "__dict__", None)
    return list(own.values()) if type(own) is dict and not isinstance(value, (type, ModuleType)) else []


def _content(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return _UNKNOWN
