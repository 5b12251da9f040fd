"""`BoundedDeque`: what a full deque holds in the program, while Dynamo tracks its items without a limit."""

from __future__ import annotations

from collections.abc import Sequence

from dynx._torch.side_effects.contents import Token

_ENDS = {"pop": -1, "popleft": 0}  # the item that a method returns
_READS = frozenset({"__contains__", "__eq__", "__iter__", "__reversed__", "copy", "count", "index", "remove"})


class BoundedDeque:
    """The items of a deque with `maxlen`, followed from one tracked content to the next.

    Torch: `DequeVariable.maxlen` of 2.11, 2.13 and 2.15 is applied to the result of `append` and `appendleft` in a way that
    leaves the wrong items, and when the bytecode stores the items: then the last `maxlen` stay.
    """

    __slots__ = ("_tracked", "held", "is_misread", "maxlen")

    def __init__(self, maxlen: int, tokens: Sequence[Token]) -> None:
        self.maxlen = maxlen
        self._tracked = list(tokens)
        self.held: list[Token] = list(tokens)  # what the program's deque holds; `_unknown()` for an item that is not known
        self.is_misread = False  # whether traced code has used an answer that the program's deque does not give

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
            self.held = [*new[:added], *held][: self.maxlen]
        elif held == old and len(new) <= self.maxlen:
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
            self.held = [_unknown() for _ in range(min(len(held) + added, self.maxlen))]

    def read(self, method: str) -> None:
        """Note that traced code uses what a method returns, before the method runs."""
        tracked, held = self._tracked, self.held
        if method in _ENDS:
            end = _ENDS[method]
            self.is_misread |= tracked[end:][:1] != held[end:][:1]
        elif method == "__len__":
            self.is_misread |= len(tracked) != len(held)
        elif method == "insert":  # it raises for a full deque
            self.is_misread |= len(held) >= self.maxlen
        elif method in _READS:
            self.is_misread |= tracked != held

    def is_left_by(self, tokens: Sequence[Token]) -> bool:
        """Return whether bytecode that stores these items leaves what the program's deque holds."""
        return not self.is_misread and self._last(list(tokens)) == self.held

    def _last(self, tokens: list[Token]) -> list[Token]:
        return tokens[-self.maxlen :] if self.maxlen else []


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
