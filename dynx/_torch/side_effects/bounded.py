"""`BoundedDeque`: what a full deque holds in the program, while Dynamo tracks its items without a limit."""

from __future__ import annotations

from collections.abc import Sequence

from dynx._torch.side_effects.contents import Token


class BoundedDeque:
    """The items of a deque with `maxlen`, followed from one tracked content to the next.

    Torch: `DequeVariable.maxlen` of 2.11, 2.13 and 2.15 is applied to the result of `append` and `appendleft` in a way that
    leaves the wrong items, and when the bytecode stores the items: then the last `maxlen` stay.
    """

    __slots__ = ("_maxlen", "_tracked", "held")

    def __init__(self, maxlen: int, tokens: Sequence[Token]) -> None:
        self._maxlen = maxlen
        self._tracked = list(tokens)
        self.held: list[Token] = list(tokens)  # what the program's deque holds; `_unknown()` for an item that is not known

    def follow(self, tokens: Sequence[Token]) -> None:
        """Note what Dynamo tracks after a mutation."""
        old, new, held = self._tracked, list(tokens), self.held
        added = len(new) - len(old)
        self._tracked = new
        if new == old:
            return
        if added > 0 and new[:-added] == old:
            self.held = self._last([*held, *new[-added:]])
        elif added > 0 and new[added:] == old:
            self.held = [*new[:added], *held][: self._maxlen]
        elif held == old and len(new) <= self._maxlen:
            self.held = new
        elif not new:
            self.held = []
        elif new == old[1:]:
            self.held = held[1:]
        elif new == old[:-1]:
            self.held = held[:-1]
        elif new == old[::-1]:
            self.held = held[::-1]
        elif not added:
            self.held = _rotated(old, new, held) or _assigned(old, new, held)
        else:
            self.held = [_unknown() for _ in range(min(len(held) + added, self._maxlen))]

    def is_left_by(self, tokens: Sequence[Token]) -> bool:
        """Return whether bytecode that stores these items leaves what the program's deque holds."""
        return self._last(list(tokens)) == self.held

    def _last(self, tokens: list[Token]) -> list[Token]:
        return tokens[-self._maxlen :] if self._maxlen else []


def _rotated(old: list[Token], new: list[Token], held: list[Token]) -> list[Token] | None:
    """Return the items rotated as the tracked ones were; None if those were not rotated."""
    steps = next((steps for steps in range(1, len(old)) if new == [*old[-steps:], *old[:-steps]]), None)
    if steps is None or not held:
        return None
    steps %= len(held)
    return [*held[-steps:], *held[:-steps]] if steps else held


def _assigned(old: list[Token], new: list[Token], held: list[Token]) -> list[Token]:
    """Return the items without those at the positions that were assigned, which count from either end."""
    changed = [index for index in range(len(old)) if old[index] != new[index]]
    either = {*changed, *(index - len(old) + len(held) for index in changed)}
    return [_unknown() if index in either else token for index, token in enumerate(held)]


def _unknown() -> Token:
    return ("unknown", object())
