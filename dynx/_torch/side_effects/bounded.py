"""`BoundedDeque`: the items that a deque with `maxlen` would hold in eager mode, while Dynamo tracks it without that limit.

Held items are those that the deque would hold in eager mode, tracked items those in Dynamo's variable. Both are represented by
tokens (`contents.Token`), which are equal for the same value.
"""

from __future__ import annotations

from collections.abc import Sequence

from dynx._torch.side_effects.contents import Token

_ENDS = {"pop": -1, "popleft": 0}  # the index of the item that the method returns
_READS = frozenset({"__contains__", "__eq__", "__iter__", "__reversed__", "copy", "count", "index", "remove"})


class BoundedDeque:
    """The items that a deque with `maxlen` would hold in eager mode, derived from the items that Dynamo tracks.

    Torch: Dynamo ignores the `maxlen` of a deque that exists before the trace (2.11, 2.13 and 2.15; in 2.15 only if it is no
    subclass), so it never drops items. The bytecode stores all tracked items, of which the deque keeps the last `maxlen`.
    """

    __slots__ = ("_tracked", "held", "is_misread", "maxlen")

    def __init__(self, maxlen: int, tokens: Sequence[Token]) -> None:
        self.maxlen = maxlen
        self._tracked = list(tokens)
        self.held: list[Token] = list(tokens)  # in eager mode; `_unknown()` for an item that cannot be derived
        self.is_misread = False  # whether traced code used the result of a method that differs from eager mode

    def follow(self, tokens: Sequence[Token]) -> None:
        """Update `held`, the items in eager mode, after a traced mutation; `tokens` are the items that Dynamo now tracks."""
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
        """Set `is_misread` if `method`, which is about to be called, would raise or return something else in eager mode."""
        tracked, held = self._tracked, self.held
        if method in _ENDS:
            end = _ENDS[method]
            self.is_misread |= tracked[end:][:1] != held[end:][:1]
        elif method == "__len__":
            self.is_misread |= len(tracked) != len(held)
        elif method == "insert":  # raises for a full deque
            self.is_misread |= len(held) >= self.maxlen
        elif method in _READS:
            self.is_misread |= tracked != held

    def is_left_by(self, tokens: Sequence[Token]) -> bool:
        """Return whether bytecode that stores the items `tokens` leaves the same items in the deque as eager mode.

        The result is also False if traced code used the result of a method, such as `pop`, that would return something else
        in eager mode.
        """
        return not self.is_misread and self._last(list(tokens)) == self.held

    def _last(self, tokens: list[Token]) -> list[Token]:
        return tokens[-self.maxlen :] if self.maxlen else []


def _rotated(old: list[Token], new: list[Token], held: list[Token]) -> list[Token] | None:
    """Rotate `held` in the way that turned `old` into `new`; return None if no rotation does so, or if `held` is empty."""
    steps = next((steps for steps in range(1, len(old)) if new == [*old[-steps:], *old[:-steps]]), None)
    if steps is None or not held:
        return None
    steps %= len(held)
    return [*held[-steps:], *held[:-steps]] if steps else held


def _assigned(old: list[Token], new: list[Token], held: list[Token]) -> list[Token]:
    """Return `held` after assignments that turned `old` into `new`; an item that may have changed becomes an unknown item.

    Traced code may count an index from either end. If `held` is shorter than `old`, the two ways reach different items.
    """
    changed = [index for index in range(len(old)) if old[index] != new[index]]
    either = {*changed, *(index - len(old) + len(held) for index in changed)}
    return [_unknown() if index in either else token for index, token in enumerate(held)]


def _unknown() -> Token:
    return ("unknown", object())
