"""When a graph ends, compare the mutations in traced code with the bytecode that Dynamo generated to repeat them."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from types import GetSetDescriptorType, MemberDescriptorType
from typing import Any, NamedTuple

from dynx._torch.cache.guard_failures import guard_source
from dynx._torch.side_effects.contents import contents_of, is_iterator
from dynx._torch.side_effects.log import EffectLog, Mutation, Tracked
from dynx._torch.tracing.render import show, show_value
from dynx._torch.tracing.stack import StackParts
from dynx._torch.tracing.variables import container_of, is_kind, stored

UNSET, DELETED = "<unset>", "<deleted>"


class RawEffect(NamedTuple):
    """One side effect of traced code, as text."""

    source: str
    kind: str  # "attribute", "items", "position", "cell", "global"
    before: str
    after: str
    stack: StackParts | None  # of its last mutation
    emitted: bool | None  # whether compiled code repeats it; None while it is traced
    order: int  # of its first mutation, in the order of the program
    announced: bool = True  # whether Dynamo noted any of its mutations


class RawMutation(NamedTuple):
    """One mutation in the order of the program; several may add up to one side effect."""

    source: str
    kind: str
    stack: StackParts | None
    announced: bool  # whether Dynamo noted it


class RawFrameEffects(NamedTuple):
    """The side effects of one graph in the order in which compiled code repeats them, and the mutations that caused them."""

    effects: tuple[RawEffect, ...]
    mutations: tuple[RawMutation, ...]
    reason: str  # why the graph ended, in torch's words
    replays: bool  # whether `torch._dynamo.config.replay_side_effects` was on


def frame_effects(output: Any, log: EffectLog) -> RawFrameEffects | None:
    """Return the side effects of the code that Dynamo has just traced into one graph, from `log`; None if there are none."""
    import torch._dynamo.config as config

    effects = tuple(_effects(output, log))
    if not effects:
        return None
    mutations = tuple(
        RawMutation(*name_of(mutation.variable, mutation.name), mutation.stack, mutation.announced)
        for mutation in log.mutations
        if not is_new(mutation.variable)
    )
    reason = getattr(output.compile_subgraph_reason, "reason", "") or ""
    return RawFrameEffects(effects, mutations, reason, bool(config.replay_side_effects))


def frames_of(tracer_output: Any) -> tuple[RawFrameEffects, ...]:
    """Return the side effects of a finished tracing attempt, graph by graph. Torch: `DynamoTracerOutput.output_graph`."""
    log = getattr(tracer_output.output_graph, "dynx_effect_log", None)
    return () if log is None else tuple(log.frames)


def is_new(variable: Any) -> bool:
    """Return whether the traced code created a variable's object, so that a mutation of it is no side effect.

    Torch: `AttributeMutationNew`, or in 2.15 a subclass of it for a subclass of a container. `NewGlobalVariable` has it too,
    but an assignment to a global is always a side effect.
    """
    return is_kind(variable.mutation_type, "AttributeMutationNew") and not is_kind(variable, "NewGlobalVariable")


def _effects(output: Any, log: EffectLog) -> Iterator[RawEffect]:
    side_effects = output.side_effects
    objects = {id(real): real for real in side_effects.keepalive}
    for address, variable in list(side_effects.id_to_variable.items()):
        tracked = log.tracked.get(id(variable))
        if tracked is not None:
            yield from _contents_effect(output, log, tracked, objects.get(address))
        elif is_new(variable) and id(variable) in log.created:
            yield from _created(output, log, variable)
        if not is_new(variable):
            for name, value in side_effects.store_attr_mutations.get(variable, {}).items():
                yield _attribute_effect(output, log, variable, name, value, objects.get(address))


def _contents_effect(output: Any, log: EffectLog, tracked: Tracked, real: Any) -> Iterator[RawEffect]:
    variable, before = tracked.variable, tracked.before
    after = contents_of(variable)
    tracked.follow()
    if after is None or tracked.is_unchanged(after):
        return
    mutations, stack, order = _mutations(log, variable, None)
    if not mutations and _is_of_optimizer(variable.source):
        return
    source, kind = name_of(variable, None)
    if kind == "position":
        written = any(value is variable.source for value, _ in log.written)
        texts = f"at item {before.entries[0]}", f"at item {after.entries[0]}"
    else:
        clears = tracked.container is not variable or stored(variable, "should_reconstruct_all") is not False
        written = _is_written(log, (variable, tracked.container)) and tracked.is_repeated(after, clears=clears)
        texts = "" if real is None else show_value(real), _after(output, tracked)
    yield RawEffect(source, kind, *texts, stack, written, order, any(mutation.announced for mutation in mutations))


def _mutations(log: EffectLog, variable: Any, name: str | None) -> tuple[list[Mutation], StackParts | None, int]:
    """Return the mutations of attribute `name` (the contents if None), the last one's stack, and the first one's log index."""
    numbered = [(i, found) for i, found in enumerate(log.mutations) if found.variable is variable and found.name == name]
    if not numbered:
        return [], None, len(log.mutations)
    return [found for _, found in numbered], numbered[-1][1].stack, numbered[0][0]


def _after(output: Any, tracked: Tracked) -> str:
    """Return the text of the contents that the bytecode leaves in a container; a deque with `maxlen` keeps the last items."""
    text, bounded = show(output.root_tx, tracked.variable), tracked.bounded
    items = stored(tracked.container, "items") if bounded is not None else None
    if bounded is None or items is None:
        return text
    kept = [show(output.root_tx, item) for item in [*items][-bounded.maxlen :]] if bounded.maxlen else []
    return f"{text.partition('(')[0]}([{', '.join(kept)}], maxlen={bounded.maxlen})"


def _is_of_optimizer(source: Any) -> bool:
    """Return whether a source is part of an optimizer; Dynamo itself mutates optimizers, for example sets `capturable=True`."""
    while source is not None and not is_kind(source, "OptimizerSource"):
        source = stored(source, "base")
    return source is not None


def _created(output: Any, log: EffectLog, variable: Any) -> Iterator[RawEffect]:
    """Yield a side effect that is lost (`emitted=False`) if traced code filled a new container but the bytecode does not."""
    contents = contents_of(variable)
    if contents is None or not contents.entries or not is_kind(variable, "UserDefinedObjectVariable"):
        return
    containers = variable, container_of(variable)
    if _is_written(log, containers):
        return
    text = show(output.root_tx, variable)
    cls = type(variable.value).__qualname__
    stack = log.created[id(variable)]
    yield RawEffect(f"a new {cls}", "items", f"{cls}()", text, stack, emitted=False, order=len(log.mutations))


def _is_written(log: EffectLog, containers: tuple[Any, ...]) -> bool:
    """Return whether the bytecode builds the contents of a container. Torch: `PyCodegen` then gets `allow_cache=False`."""
    return any(not is_cached and any(value is container for container in containers) for value, is_cached in log.written)


def _attribute_effect(output: Any, log: EffectLog, variable: Any, name: str, value: Any, real: Any) -> RawEffect:
    source, kind = name_of(variable, name)
    _, stack, order = _mutations(log, variable, name)
    is_deleted = is_kind(value, "DeletedVariable")
    before = before_of(output, variable, name, real)
    loaded = (value, variable, variable.source)
    written = any(any(part is candidate for candidate in loaded) for part, _ in log.written)
    written |= is_deleted and before == UNSET  # there is nothing to delete
    after = DELETED if is_deleted else show(output.root_tx, value)
    return RawEffect(source, kind, before, after, stack, written, order)


def before_of(output: Any, variable: Any, name: str, real: Any) -> str:
    """Return the text of an attribute, cell or global before the trace; calls no code of the user.

    Tracing does not mutate `real`, the object itself, so it has the value from before the trace.
    """
    if is_kind(variable, "CellVariable"):
        content = variable.pre_existing_contents
        return UNSET if content is None else show(output.root_tx, content)
    if is_kind(variable, "NewGlobalVariable"):
        scope = output.global_scope
        return show_value(scope[name]) if name in scope else UNSET
    missing = object()
    found = inspect.getattr_static(real, name, missing)
    if found is missing:
        return UNSET
    if isinstance(found, (MemberDescriptorType, GetSetDescriptorType)):  # a slot, or an attribute of a class in C
        try:
            found = found.__get__(real, type(real))
        except AttributeError:
            return UNSET
    return show_value(found)


def name_of(variable: Any, name: str | None) -> tuple[str, str]:
    """Return source and kind of a mutation of attribute `name` (the contents if None): `("L['self'].step", "attribute")`."""
    source = "?" if variable.source is None else guard_source(variable.source)
    if name is None:
        return source, "position" if is_iterator(variable) else "items"
    if is_kind(variable, "CellVariable"):
        return str(getattr(variable, "local_name", None) or source), "cell"
    if is_kind(variable, "NewGlobalVariable"):
        return name, "global"
    return f"{source}.{name}", "attribute"
