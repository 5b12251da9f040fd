"""Where a captured graph has the addresses of its inputs: what differs between captures that differ in nothing else.

A graph is captured with two sets of inputs, and again with the first. A word that holds an address of the first set in the
first capture, and the same place of the second in the second, is a pointer to an input. A word that differs otherwise is
explained if it points to memory of the captures themselves, or differs also between captures with the same inputs (padding of
parameters, which is never set). Padding may also hold the lower half of an address that lay there before, next to a number of
four bytes: nothing can be read at half an address. What is left unexplained makes the graph one that is not patched.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

_WORD = 8
_LOWER = (1 << 32) - 1


class NodeImage(NamedTuple):
    """What a node of a graph does, byte for byte."""

    kind: Literal["kernel", "memcpy", "memset", "empty", "other"]
    does: tuple[object, ...]  # which function on which grid, how many bytes: what must not differ
    fields: tuple[tuple[int, bytes], ...] = ()  # parameters: where they begin, and their bytes


class Range(NamedTuple):
    """Memory from an address up to another."""

    start: int
    end: int


class Site(NamedTuple):
    """A word of a node that points to an input."""

    node: int
    field: int
    offset: int  # of the word, in bytes from the beginning of the field
    tensor: int
    delta: int  # bytes from where the tensor begins


class Stale(NamedTuple):
    """Four bytes of a node that were half an address, beside another number: to be set to 0, to see that nothing reads them."""

    node: int
    field: int
    offset: int


class Words(NamedTuple):
    """What differs between captures."""

    sites: list[Site]
    stale: list[Stale]


class NotPatchable(Exception):
    """Pointers of a graph cannot be told from what else it holds; says why."""


class Unexplained(NotPatchable):
    """A word differs for no reason that is known: what differs by chance may differ in more captures."""


def pointer_sites(
    first: Sequence[NodeImage],
    second: Sequence[NodeImage],
    again: Sequence[Sequence[NodeImage]],
    inputs: Sequence[tuple[Range, Range]],
    memory: Sequence[Range],
) -> Words:
    """Find the words that point to inputs, given with both places of each; `memory` is all that the allocator has, sorted.

    `again` are one or more captures with the first inputs. Raises NotPatchable where captures do different things, and
    Unexplained where a word is left over.
    """
    counts = [len(each) for each in (first, second, *again)]
    if len(set(counts)) > 1:
        raise NotPatchable(f"captures of it have {', '.join(map(str, counts[:-1]))} and {counts[-1]} nodes")
    found: list[Site | Stale] = []
    for number, (one, two, *others) in enumerate(zip(first, second, *again, strict=True)):
        if one.kind == "other":
            raise NotPatchable(f"node {number} is no kernel, copy or memset")
        if any(one[:2] != each[:2] for each in (two, *others)):
            raise NotPatchable(f"captures of it differ in node {number}: {one.does} and {two.does}")
        found += _words_of(number, one, two, others, inputs, memory)
    return Words([each for each in found if isinstance(each, Site)], [each for each in found if isinstance(each, Stale)])


def _words_of(
    number: int,
    one: NodeImage,
    two: NodeImage,
    again: Sequence[NodeImage],
    inputs: Sequence[tuple[Range, Range]],
    memory: Sequence[Range],
) -> Iterator[Site | Stale]:
    for field, images in enumerate(zip(one.fields, two.fields, *(each.fields for each in again), strict=True)):
        begin = images[0][0]
        for offset in range(-begin % _WORD, len(images[0][1]) - _WORD + 1, _WORD):
            here, there, *others = (int.from_bytes(data[offset : offset + _WORD], "little") for _, data in images)
            is_stable = all(each == here for each in others)
            tensor = _input_at(here, inputs)
            if tensor is not None:
                delta = here - inputs[tensor][0].start
                if there != inputs[tensor][1].start + delta or not is_stable:
                    raise NotPatchable(f"node {number} looks as if it pointed to an input, but does not follow it")
                if one.kind == "memset":
                    raise NotPatchable(f"node {number} sets an input")
                yield Site(number, field, offset, tensor, delta)
            elif here != there and is_stable:
                is_internal = _is_in(here, memory) and _is_in(there, memory)
                if is_internal and all(there - here != two.start - one.start for one, two in inputs):
                    continue
                half = None if is_internal else _stale_half(here, there, memory)
                if half is None:
                    raise Unexplained(f"word {offset} of parameter {field} of node {number} differs: {here:#x} and {there:#x}")
                yield Stale(number, field, offset + half)
        _check_ends(number, field, images)


def _stale_half(here: int, there: int, memory: Sequence[Range]) -> int | None:
    """Give where the half of a word is that differs as the lower halves of addresses do, where the other half does not."""
    for half in (0, 4):
        one, two = (each >> 8 * half & _LOWER for each in (here, there))
        if (here ^ there) & ~(_LOWER << 8 * half) == 0 and _is_lower_half(one, memory) and _is_lower_half(two, memory):
            return half
    return None


def _is_lower_half(number: int, memory: Sequence[Range]) -> bool:
    return any(each.start <= (end & ~_LOWER | number) < each.end for each in memory for end in each)


def _check_ends(number: int, field: int, images: Sequence[tuple[int, bytes]]) -> None:
    """See that what is no whole word does not follow the inputs."""
    begin, data = images[0]
    head = min(-begin % _WORD, len(data))
    tail = head + (len(data) - head) // _WORD * _WORD
    one, two, *others = (each[:head] + each[tail:] for _, each in images)
    if one != two and all(one == each for each in others):
        raise Unexplained(f"parameter {field} of node {number} differs in bytes that are no pointer")


def _input_at(address: int, inputs: Sequence[tuple[Range, Range]]) -> int | None:
    return next((index for index, (first, _) in enumerate(inputs) if first.start <= address < first.end), None)


def _is_in(address: int, memory: Sequence[Range]) -> bool:
    place = bisect_right(memory, (address, 1 << 64)) - 1
    return place >= 0 and memory[place].start <= address < memory[place].end
