"""Records of side effects: what traced code mutates, and whether the compiled code repeats the mutation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from dynx.records.location import Location
from dynx.records.record import Record
from dynx.records.shown import Shown

EffectKind = Literal["attribute", "items", "position", "cell", "global"]


@dataclass(frozen=True, slots=True)
class Effect(Record):
    """A mutation that traced code makes to an object outside the trace; compiled code normally repeats it after the graph ran.

    `before` and `after` show the value before the trace and after the last mutation, as text: the value of an attribute, cell
    or global, the items of a container, or the position of an iterator. Tensors are shown by dtype and sizes.
    """

    source: str  # "L['self'].step"; "a new Tags" for an object that the traced code created
    kind: EffectKind
    after: str
    before: str = ""
    location: Location | None = None  # of the last mutation; if a method of a container's subclass makes it, in that method
    stack: tuple[Location, ...] = ()  # from the compiled function to that line
    emitted: bool | None = None  # whether the compiled code repeats it; None while it is traced
    announced: bool = True  # False: Dynamo changed its copy of the container without noting a mutation
    order: int = 0  # of its first mutation, in the order of the program
    code: str = ""  # the source line at `location.own`

    @property
    def is_lost(self) -> bool:
        """Whether the compiled code does not repeat the mutation, so that the object keeps its old value."""
        return self.emitted is False


@dataclass(frozen=True, slots=True)
class Mutation(Record):
    """One mutation that Dynamo traced; an `Effect` combines all mutations of one object."""

    source: str
    kind: EffectKind
    location: Location | None
    stack: tuple[Location, ...] = ()
    announced: bool = True


@dataclass(frozen=True, slots=True)
class FrameEffects(Shown):
    """The side effects of one compiled graph, in the order in which the compiled code repeats them after the graph has run."""

    generation: int
    id: str  # compile id, "0/1"
    location: Location  # of the compiled function
    effects: tuple[Effect, ...]
    events: tuple[Mutation, ...] = ()  # in the order of the program
    reason: str = ""  # why the graph ended, in torch's words: "return_value", or the graph break
    replays: bool = True  # False: `torch._dynamo.config.replay_side_effects` was off, so that no side effect is repeated

    @property
    def dropped(self) -> tuple[Effect, ...]:
        """The side effects that Dynamo recorded while tracing, but that the compiled code does not repeat."""
        return tuple(effect for effect in self.effects if effect.is_lost and effect.announced)

    @property
    def unannounced(self) -> tuple[Effect, ...]:
        """The side effects that Dynamo did not record while tracing, so that the compiled code does not repeat them."""
        return tuple(effect for effect in self.effects if effect.is_lost and not effect.announced)


@dataclass(frozen=True, slots=True)
class Modified(Record):
    """What traced code has changed in an object so far: some `attributes`, or its `items`. False if nothing has changed."""

    items: bool
    attributes: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return self.items or bool(self.attributes)
