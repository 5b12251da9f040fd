"""Where a captured graph has the addresses of its inputs: what differs between captures that differ in nothing else.

A graph is captured with two sets of inputs, and again with the first. A word that holds an address of the first set in the
first capture, and the same place of the second in the second, is a pointer to an input. A word that differs otherwise is
explained if it points to memory of the captures themselves, or differs also between captures with the same inputs (padding of
parameters, which is never set). Padding may also hold what lay there before: any address in one capture and zeros in another;
an address on the host, which no kernel reads; the lower half of an address, next to a number of four bytes. What is left
unexplained makes the graph one that is not patched.
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
    """Bytes of a node that were part of an address: to be set to those of the other capture, to see that nothing reads them."""

    node: int
    field: int
    offset: int
    other: bytes


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
    host: Sequence[Range] = (),
) -> Words:
    """Find the words that point to inputs, given with both places of each; `memory` is all that the allocator has, sorted.

    `host` is what this process may write to on the host, sorted. `again` are one or more captures with the first inputs. Raises
    NotPatchable where captures do different things, and Unexplained where a word is left over.
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
        found += _words_of(number, one, two, others, inputs, memory, host)
    return Words([each for each in found if isinstance(each, Site)], [each for each in found if isinstance(each, Stale)])


def points_into(images: Sequence[NodeImage], memory: Sequence[Range]) -> bool:
    """Tell whether a word of some nodes is an address in some memory."""
    for _, _, fields in images:
        for begin, data in fields:
            for offset in range(-begin % _WORD, len(data) - _WORD + 1, _WORD):
                address = int.from_bytes(data[offset : offset + _WORD], "little")
                if any(each.start <= address < each.end for each in memory):
                    return True
    return False


def _words_of(
    number: int,
    one: NodeImage,
    two: NodeImage,
    again: Sequence[NodeImage],
    inputs: Sequence[tuple[Range, Range]],
    memory: Sequence[Range],
    host: Sequence[Range],
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
                if 0 in (here, there) and _is_left_over(here or there, inputs, memory, host):
                    continue  # no pointer to an input is 0
                is_internal = _is_in(here, memory) and _is_in(there, memory)
                if is_internal and all(there - here != two.start - one.start for one, two in inputs):
                    continue
                part = None if is_internal else _stale_part(here, there, memory, host)
                if part is None:
                    raise Unexplained(f"word {offset} of parameter {field} of node {number} differs: {here:#x} and {there:#x}")
                yield Stale(number, field, offset + part.start, there.to_bytes(_WORD, "little")[part])
        yield from _ends(number, field, images)


def _is_left_over(word: int, inputs: Sequence[tuple[Range, Range]], memory: Sequence[Range], host: Sequence[Range]) -> bool:
    """Tell whether a word is an address, but not one of the second inputs."""
    return not any(two.start <= word < two.end for _, two in inputs) and (_is_in(word, memory) or _is_in(word, host))


def _stale_part(here: int, there: int, memory: Sequence[Range], host: Sequence[Range]) -> slice | None:
    """Give the bytes of a word that differ as addresses on the host do, or as lower halves of any; None if others differ."""
    if _is_in(here, host) and _is_in(there, host):
        return slice(0, _WORD)
    for half in (0, 4):
        one, two = (each >> 8 * half & _LOWER for each in (here, there))
        is_only_half = (here ^ there) & ~(_LOWER << 8 * half) == 0
        if is_only_half and any(_is_lower_half(one, each) and _is_lower_half(two, each) for each in (memory, host)):
            return slice(half, half + 4)
    return None


def _is_lower_half(number: int, memory: Sequence[Range]) -> bool:
    return any(each.start <= (end & ~_LOWER | number) < each.end for each in memory for end in each)


def _ends(number: int, field: int, images: Sequence[tuple[int, bytes]]) -> Iterator[Stale]:
    """Give what is no whole word, and so no address, where it differs all the same."""
    begin, size = images[0][0], len(images[0][1])
    head = min(-begin % _WORD, size)
    for end in (slice(0, head), slice(head + (size - head) // _WORD * _WORD, size)):
        one, two, *others = (data[end] for _, data in images)
        if one != two and all(one == each for each in others):
            yield Stale(number, field, end.start, two)


def _input_at(address: int, inputs: Sequence[tuple[Range, Range]]) -> int | None:
    return next((index for index, (first, _) in enumerate(inputs) if first.start <= address < first.end), None)


def _is_in(address: int, memory: Sequence[Range]) -> bool:
    place = bisect_right(memory, (address, 1 << 64)) - 1
    return place >= 0 and memory[place].start <= address < memory[place].end
