"""Read the guards and side effects that the current tracing attempt has collected so far."""

from __future__ import annotations

from typing import Any, NamedTuple

from dynx._torch.cache.guard_failures import guard_source
from dynx._torch.tracing.render import show
from dynx._torch.tracing.stack import RawFrame, of_summaries
from dynx._torch.tracing.variables import is_kind


class RawGuard(NamedTuple):
    """One requested guard as text, with the stack, outermost frame first, of the line that first requested it."""

    kind: str  # torch's name, "TENSOR_MATCH"
    source: str
    stack: tuple[RawFrame, ...]


class RawEffect(NamedTuple):
    """One side effect of the traced code, which the compiled code applies at its end, as text."""

    source: str
    kind: str  # "attribute", "items", "cell", "global"
    after: str


def guards(tx: Any, first: int = 0) -> tuple[RawGuard, ...]:
    """Return the guards that the current attempt has requested so far, oldest first, from index `first` on.

    Torch: `OutputGraph.guards`, a `GuardsSet` whose `inner` keeps the order of insertion.
    """
    return tuple(
        RawGuard(guard.create_fn_name(), guard_source(guard.originating_source), of_summaries(guard.user_stack))
        for guard in list(tx.output.guards.inner)[first:]
    )


def guard_count(tx: Any) -> int:
    """Return the number of guards that the current attempt has requested so far."""
    return len(tx.output.guards.inner)


def effects(tx: Any) -> tuple[RawEffect, ...]:
    """Return the mutations, by the traced code, of objects that exist outside of the trace.

    Torch: `SideEffects.store_attr_mutations` for attributes, cells and globals, `is_modified` for contents of containers.
    """
    side_effects = tx.output.side_effects
    mutations = []
    for variable, attributes in side_effects.store_attr_mutations.items():
        if is_new(variable):
            continue
        for name, value in attributes.items():
            kind = "attribute"
            source = f"{_name(variable)}.{name}"
            if is_kind(variable, "CellVariable"):
                kind, source = "cell", str(getattr(variable, "local_name", None) or _name(variable))
            elif is_kind(variable, "NewGlobalVariable"):
                kind, source = "global", name
            mutations.append(RawEffect(source, kind, "<deleted>" if is_kind(value, "DeletedVariable") else show(tx, value)))
    for variable in side_effects.id_to_variable.values():
        mutation = type(variable.mutation_type).__name__
        if mutation == "ValueMutationExisting" and side_effects.is_modified(variable):
            mutations.append(RawEffect(_name(variable), "items", show(tx, variable)))
    return tuple(mutations)


def is_new(variable: Any) -> bool:
    """Return whether the traced code created a variable's object, so that a mutation of it is no side effect.

    Torch: `AttributeMutationNew`, also for cells and for globals that did not exist (their variable has no source).
    """
    return type(variable.mutation_type).__name__ == "AttributeMutationNew" and not is_kind(variable, "NewGlobalVariable")


def _name(variable: Any) -> str:
    return "?" if variable.source is None else guard_source(variable.source)
