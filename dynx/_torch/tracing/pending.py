"""Guards and side effects that the attempt under way has gathered so far."""

from __future__ import annotations

from typing import Any, NamedTuple

from dynx._torch.cache.guard_failures import guard_source
from dynx._torch.tracing.render import show
from dynx._torch.tracing.stack import RawFrame, of_summaries
from dynx._torch.tracing.variables import is_kind


class RawGuard(NamedTuple):
    """One guard in plain data; the stack, outermost first, is that of the first line that asked for it."""

    kind: str  # torch's name, "TENSOR_MATCH"
    source: str
    stack: tuple[RawFrame, ...]


class RawEffect(NamedTuple):
    """One change that the compiled code will make when it has run, in plain data."""

    source: str
    kind: str  # "attribute", "items", "cell", "global"
    after: str


def guards(tx: Any, first: int = 0) -> tuple[RawGuard, ...]:
    """List the guards asked for so far, oldest first, from number `first` on.

    Torch: `OutputGraph.guards`, a `GuardsSet` whose `inner` keeps the order of insertion.
    """
    found = list(tx.output.guards.inner)[first:]
    return tuple(
        RawGuard(each.create_fn_name(), guard_source(each.originating_source), of_summaries(each.user_stack)) for each in found
    )


def guard_count(tx: Any) -> int:
    return len(tx.output.guards.inner)


def effects(tx: Any) -> tuple[RawEffect, ...]:
    """List the changes to objects that exist outside of the trace.

    Torch: `SideEffects.store_attr_mutations` for attributes, cells and globals, `is_modified` for contents of containers.
    """
    side_effects = tx.output.side_effects
    found = []
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
            found.append(RawEffect(source, kind, "<deleted>" if is_kind(value, "DeletedVariable") else show(tx, value)))
    for variable in side_effects.id_to_variable.values():
        mutation = type(variable.mutation_type).__name__
        if mutation == "ValueMutationExisting" and side_effects.is_modified(variable):
            found.append(RawEffect(_name(variable), "items", show(tx, variable)))
    return tuple(found)


def is_new(variable: Any) -> bool:
    """Tell whether the traced code made the object itself: nobody else sees the change.

    Torch: `AttributeMutationNew`, also for cells and for globals that did not exist (their variable has no source).
    """
    return type(variable.mutation_type).__name__ == "AttributeMutationNew" and not is_kind(variable, "NewGlobalVariable")


def _name(variable: Any) -> str:
    return "?" if variable.source is None else guard_source(variable.source)
