"""Read the side effects that the current tracing attempt has collected so far."""

from __future__ import annotations

from typing import Any

from dynx._torch.side_effects.frame_effects import DELETED, RawEffect, before_of, is_new, name_of
from dynx._torch.tracing.render import show, show_value
from dynx._torch.tracing.stack import StackParts
from dynx._torch.tracing.variables import container_of, is_kind


def effects(tx: Any) -> tuple[RawEffect, ...]:
    """Return the mutations so far of objects that traced code did not create, in the order in which compiled code repeats them.

    Torch: `SideEffects.id_to_variable`; `store_attr_mutations` for attributes, cells and globals, `is_modified` for contents,
    `mutation_user_stacks` for lines.
    """
    side_effects = tx.output.side_effects
    objects = {id(real): real for real in side_effects.keepalive}
    found: list[RawEffect] = []
    for address, variable in side_effects.id_to_variable.items():
        if is_new(variable):
            continue
        real = objects.get(address)
        if _has_new_items(side_effects, variable):
            stack = _stack(side_effects, container_of(variable)) or _stack(side_effects, variable)
            source, kind = name_of(variable, None)
            found.append(RawEffect(source, kind, show_value(real), show(tx, variable), stack, None, len(found)))
        for name, value in side_effects.store_attr_mutations.get(variable, {}).items():
            source, kind = name_of(variable, name)
            after = DELETED if is_kind(value, "DeletedVariable") else show(tx, value)
            before = before_of(tx.output, variable, name, real)
            found.append(RawEffect(source, kind, before, after, _stack(side_effects, variable), None, len(found)))
    return tuple(found)


def modified(tx: Any, variable: Any) -> tuple[bool, tuple[str, ...]]:
    """Return whether traced code has changed the contents of a variable's object so far, and which attributes."""
    side_effects = tx.output.side_effects
    return _has_new_items(side_effects, variable), tuple(side_effects.store_attr_mutations.get(variable, ()))


def _has_new_items(side_effects: Any, variable: Any) -> bool:
    """Return whether Dynamo noted a mutation of a container's contents. Torch: `ValueMutationExisting.is_modified`."""
    mutation = container_of(variable).mutation_type
    return is_kind(mutation, "ValueMutationExisting") and bool(mutation.is_modified)


def _stack(side_effects: Any, variable: Any) -> StackParts | None:
    """Return the user's stack at a variable's last mutation; torch stores none if `side_effect_replay_policy` is "silent"."""
    stacks = side_effects.mutation_user_stacks.get(variable)
    return (tuple(stacks[-1]), None) if stacks else None
