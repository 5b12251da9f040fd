"""Predict whether a backward pass would be captured: compare it with the captures of a log, without running it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from dynx._torch.autograd.captures import RawCapture
from dynx.autograd._differences import OUTPUTS, Difference, at_node, of_request

_NUMBERS = re.compile(r"\(?[-\d, ]+\)?")  # an int, or ints: torch may make them dynamic, then another one captures nothing


def first_differences(new: RawCapture, old: RawCapture) -> tuple[list[Difference], list[Difference]]:
    """Return what differs between a pass and a capture: what is certain to be in torch's key, and the rest."""
    certain: list[Difference] = []
    doubtful: list[Difference] = []
    for found in _all(new, old):
        (certain if _is_certain(found) else doubtful).append(found)
        if found.kind == "structure" and found.subject == "node":
            break  # from here on, other nodes are compared
    return certain, doubtful


def _all(new: RawCapture, old: RawCapture) -> Iterator[Difference]:
    yield from of_request(old, new)
    for number in range(1, 1 + max(len(new.nodes), len(old.nodes))):
        if number > len(new.nodes):
            yield Difference("structure", None, "node", old.nodes[number - 1].name, "the end")
            return
        yield from at_node(old, {}, new, {}, number)


def _is_certain(found: Difference) -> bool:
    if found.kind == "value":
        return not (_NUMBERS.fullmatch(found.before) and _NUMBERS.fullmatch(found.after))
    if found.kind == "request":
        return found.subject != OUTPUTS  # a subclass without an effect on autograd has the same key
    return found.kind != "structure" or found.subject == "node"


def fewest(found: Sequence[tuple[list[Difference], list[Difference]]]) -> tuple[list[Difference], list[Difference]]:
    """Return the differences from the most similar capture; one without certain differences is most similar."""
    return min(found, key=lambda each: (len(each[0]), len(each[1])))
