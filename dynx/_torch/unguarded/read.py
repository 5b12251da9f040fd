"""`Read`: something that traced code reads and compiled code does not read again, and a probe that reads it again later."""

from __future__ import annotations

import ast
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from weakref import ref

from dynx._bytecode.safe_read import UNKNOWN, follow
from dynx._torch.hooks import OnError
from dynx._torch.tracing.stack import StackParts, stack_parts
from dynx._torch.tracing.variables import is_kind, is_lazy, settled, source_of, stored, untouched_value
from dynx.records.unguarded import ReadKind


class Scope(NamedTuple):
    """The variables of one call: `L` and `G` in the sources of guards."""

    locals: Mapping[str, Any]
    globals: Mapping[str, Any]


class Probe(ABC):
    """Reads a value again. It runs no code of the program, and keeps no object of the program alive."""

    __slots__ = ()

    @property
    def file(self) -> str | None:
        """The file of a function's code."""
        return None

    @abstractmethod
    def key(self, scope: Scope | None) -> object:
        """Return the value, or what stands for it in a comparison; UNKNOWN if it cannot be read.

        `scope` has the variables of a call of the compiled function; None between calls.
        """

    @abstractmethod
    def text(self, scope: Scope | None) -> str:
        """Return the value for people."""


@dataclass(frozen=True, slots=True, eq=False)
class Read:
    """One read of traced code: how the program writes it, its value in the trace, and the user's stack."""

    kind: ReadKind
    text: str
    probe: Probe
    key: object
    value: str
    stack: StackParts | None
    source: str | None = None  # of the guard that would watch it

    @property
    def file(self) -> str | None:
        """The file of the function that is read; None for other reads."""
        return self.probe.file

    def is_changed(self, scope: Scope | None) -> bool:
        """Return whether the value is another one now; False if it cannot be read."""
        now = self.probe.key(scope)
        return now is not UNKNOWN and now != self.key


@dataclass(slots=True, eq=False, weakref_slot=True)
class Reads:
    """The reads of one tracing attempt, each with the variable of its result, or None."""

    scope: Scope
    on_error: OnError = lambda hook, error: None  # takes what recording raises, which must not reach torch
    found: dict[object, tuple[Read, Any]] = field(default_factory=dict)

    def add(
        self,
        kind: ReadKind,
        name: object,
        make: Callable[[], tuple[str, Probe]],
        variable: Any = None,
        source: str | None = None,
    ) -> None:
        """Add what `make` returns, text and probe, unless the same read, by kind and `name`, is there already."""
        if (kind, name) in self.found:
            return
        text, probe = make()
        read = Read(kind, text, probe, probe.key(self.scope), probe.text(self.scope), stack_parts(), source)
        self.found[kind, name] = read, variable

    def of_constants(self) -> tuple[Read, ...]:
        """Return the reads whose results are not read again when compiled code runs: constants, functions and classes."""
        return tuple(read for read, variable in self.found.values() if variable is None or _is_fixed(settled(variable)))


def reads_of(output: Any) -> Reads:
    """Return the `Reads` of a tracing attempt. Torch: `OutputGraph`."""
    reads: Reads | None = getattr(output, "dynx_reads", None)
    if reads is None:
        reads = output.dynx_reads = Reads(Scope(output.local_scope, output.global_scope))
    return reads


def _is_fixed(variable: Any) -> bool:
    return not is_lazy(variable) and not is_kind(variable, "SymNodeVariable", "TensorVariable")


def real_value(variable: Any) -> Any:
    """Return the Python object that a variable stands for; UNKNOWN for one that traced code created, and for containers."""
    if is_lazy(variable) and not variable.is_realized():
        return untouched_value(variable)
    variable = settled(variable)
    for name in ("value", "fn"):
        value = stored(variable, name)
        if value is not None:
            return value
    return UNKNOWN


class Referent:
    """How to reach an object again: by the source of a guard, or by a weak reference."""

    __slots__ = ("_tree", "_weak")

    def __init__(self, value: Any, source: str | None) -> None:
        self._weak = None
        try:
            self._weak = ref(value) if value is not UNKNOWN else None
        except TypeError:
            pass
        self._tree = ast.parse(source, mode="eval").body if source is not None else None

    @classmethod
    def of(cls, variable: Any) -> Referent:
        return cls(real_value(variable), source_of(variable))

    @classmethod
    def at(cls, source: str, scope: Scope) -> Referent:
        """Return the referent of what a source leads to."""
        referent = cls(UNKNOWN, source)
        return cls(referent.get(scope), source)

    def get(self, scope: Scope | None) -> Any:
        """Return the object; UNKNOWN if it is gone, or if it can only be reached in a call."""
        if self._tree is not None and scope is not None:
            found = follow(self._tree, scope.locals, scope.globals)
            if found is not UNKNOWN:
                return found
        found = self._weak() if self._weak is not None else None
        return UNKNOWN if found is None else found
