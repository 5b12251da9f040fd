"""Record the mutations that Dynamo traces in one tracing attempt, and the bytecode that it generates to repeat them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from dynx._torch.side_effects.bounded import BoundedDeque
from dynx._torch.side_effects.contents import Contents, contents_of, is_same, is_update, size_of
from dynx._torch.tracing.stack import StackParts, stack_parts
from dynx._torch.tracing.variables import container_of, is_kind, stored

_MAXLEN: Any = deque.__dict__["maxlen"]  # a subclass may override the attribute
_ATTRIBUTE = "dynx_effect_log"  # an attribute of torch's `OutputGraph`; each attempt has its own


class Mutation(NamedTuple):
    """One mutation while tracing: of a variable's contents, or of its attribute `name`."""

    variable: Any
    name: str | None
    stack: StackParts | None
    announced: bool = True  # whether Dynamo noted it; a mutation that it did not note is found by comparing contents


class Tracked:
    """A container of the program, with its contents when Dynamo began to track it."""

    __slots__ = ("before", "bounded", "container", "variable")

    def __init__(self, real: Any, variable: Any, before: Contents) -> None:
        self.variable, self.container, self.before = variable, container_of(variable), before
        # Dynamo ignores `maxlen`, except that of a subclass of deque from 2.15 on
        is_limited = getattr(stored(self.container, "maxlen"), "value", None) is not None
        maxlen = _MAXLEN.__get__(real) if issubclass(type(real), deque) and not is_limited else None
        self.bounded = BoundedDeque(maxlen, before.tokens()) if maxlen is not None else None

    def follow(self) -> None:
        """Update `bounded`, the items that a deque with `maxlen` has in eager mode, from the items that Dynamo tracks now."""
        contents = contents_of(self.variable) if self.bounded is not None else None
        if contents is not None:
            self.bounded.follow(contents.tokens())  # type: ignore[union-attr]

    def is_unchanged(self, after: Contents) -> bool:
        """Return whether eager mode would leave the container unchanged; `after` is what Dynamo tracks when the graph ends."""
        is_held = self.bounded is None or (self.bounded.held == self.before.tokens() and not self.bounded.is_misread)
        return is_held and is_same(self.before, after)

    def is_repeated(self, after: Contents, *, clears: bool) -> bool:
        """Return whether bytecode that stores the contents `after` leaves the object with the same contents as eager mode.

        `clears` is whether the bytecode removes the old contents first; otherwise it updates the dict or set.
        """
        if self.bounded is not None:
            return self.bounded.is_left_by(after.tokens())
        return clears or is_update(self.before, after)


class EffectLog:
    """The record of one tracing attempt: the containers that Dynamo tracks, the mutations, the bytecode that repeats them."""

    __slots__ = ("_by_id", "created", "depth", "frames", "mutations", "tracked", "written")

    def __init__(self) -> None:
        self.tracked: dict[int, Tracked] = {}  # by id() of the variable
        self.created: dict[int, StackParts | None] = {}  # by id() of the variable of an object that the traced code creates
        self.mutations: list[Mutation] = []
        self.depth: int | None = None  # of nested calls of `PyCodegen`; None outside of the code for side effects
        self.written: list[tuple[Any, bool]] = []  # the values that this code loads, each with `allow_cache`
        self.frames: list[Any] = []  # the effects of each graph that the attempt has ended
        self._by_id: dict[int, Tracked] = {}  # by id() of the variable, and of the variable that holds its items

    def track(self, real: Any, variable: Any) -> None:
        """Record the contents of the container `real`, which Dynamo begins to track as `variable`."""
        before = contents_of(variable)
        if before is None or id(variable) in self.tracked:
            return
        tracked = Tracked(real, variable, before)
        self.tracked[id(variable)] = self._by_id[id(variable)] = self._by_id[id(tracked.container)] = tracked

    def mutate(self, variable: Any, name: str | None) -> None:
        """Record a mutation that Dynamo noted, and the traced line; `name` is the mutated attribute, or None for the contents.

        Mutations of containers that the traced code creates are no side effects, and are left out.
        """
        tracked = self._by_id.get(id(variable)) if name is None else None
        if tracked is None and name is None and is_kind(variable.mutation_type, "ValueMutationNew"):
            return
        if tracked is not None:
            tracked.follow()
            variable = tracked.variable
        self.mutations.append(Mutation(variable, name, stack_parts()))

    def call(self, container: Any, method: str, *, is_used: bool) -> Callable[[], None] | None:
        """Observe a call of a list's or deque's method; the caller must call the returned function when the method has ended.

        The returned function records a mutation that Dynamo did not note. For a container that Dynamo does not track, None is
        returned. `is_used` is whether traced code uses what the method returns.
        """
        tracked = self._by_id.get(id(container))
        if tracked is None:
            return None
        tracked.follow()
        if tracked.bounded is not None and (is_used or method == "insert"):
            tracked.bounded.read(method)
        noted, size = len(self.mutations), size_of(tracked.container)

        def after() -> None:
            tracked.follow()
            if len(self.mutations) == noted and size_of(tracked.container) != size:
                self.mutations.append(Mutation(tracked.variable, None, stack_parts(), announced=False))

        return after


def log_of(output: Any) -> EffectLog:
    """Return the `EffectLog` of the tracing attempt that this `OutputGraph` belongs to; create it at the first call."""
    log = getattr(output, _ATTRIBUTE, None)
    if log is None:
        log = EffectLog()
        setattr(output, _ATTRIBUTE, log)
    return log
