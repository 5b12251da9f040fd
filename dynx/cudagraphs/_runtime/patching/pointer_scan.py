"""A scan of the node parameters of captured graphs for pointers to inputs, by comparing captures that differ only in addresses.

A graph is captured with two sets of inputs at different addresses, and again with the same sets until each difference is
explained. A word (8 aligned bytes) is a pointer to an input if it is an address in the input of the first set in the first
capture, and the corresponding address of the second set in the second capture; the address of the end of an input counts too,
since kernels may count back from it. The distances between inputs differ in the two sets, so no word corresponds to two inputs.
Any other difference is explained if

- both words are addresses of torch's allocator that differ by another distance than those of the inputs: memory of the captures
  themselves, or
- the word also differs between captures with the same inputs: padding between parameters, which is never initialized, or
- the word is padding with earlier contents of the memory: an address in one capture and zeros in the other; an address on the
  host in both, which no kernel reads; the lower half of an address, next to a number of four bytes.

A graph with an unexplained difference is not patched.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

_WORD = 8
_LOW_HALF = (1 << 32) - 1


class NodeParams(NamedTuple):
    """The parameters of a node of a raw graph, byte for byte."""

    kind: Literal["kernel", "memcpy", "memset", "empty", "other"]
    operation: tuple[object, ...]  # equal in all captures: kernel function and launch grid, or number of bytes
    fields: tuple[tuple[int, bytes], ...] = ()  # offset and bytes of each kernel parameter, or of source and target


class AddressRange(NamedTuple):
    """Memory from the address `start` up to, but not including, `end`."""

    start: int
    end: int


class InputPointer(NamedTuple):
    """A word (8 aligned bytes) of a node's parameters that points to an input."""

    node: int  # index
    field: int  # index in `NodeParams.fields`
    offset: int  # of the word, in bytes from the beginning of the field
    tensor: int  # index of the input
    delta: int  # bytes from the beginning of the input


class StaleBytes(NamedTuple):
    """Padding in node parameters that contains bytes of an old address; patching overwrites it with `replacement`."""

    node: int
    field: int
    offset: int
    replacement: bytes  # the bytes of the second capture


class ScanResult(NamedTuple):
    """What a scan of node parameters found: pointers to inputs, and padding that contains bytes of old addresses (stale)."""

    pointers: list[InputPointer]
    stale: list[StaleBytes]


class NotPatchable(Exception):
    """Raised if the input pointers of a graph cannot be found or verified; the message says why."""


class MisleadingWord(NotPatchable):
    """Raised if 8 bytes of node parameters look like an input's address but do not change with it; new addresses may help."""


class UnexplainedDifference(NotPatchable):
    """Raised if 8 bytes of node parameters differ between captures for an unknown reason; more captures may explain it."""


def find_input_pointers(
    first: Sequence[NodeParams],
    second: Sequence[NodeParams],
    repeats: Sequence[Sequence[NodeParams]],
    inputs: Sequence[tuple[AddressRange, AddressRange]],
    device_memory: Sequence[AddressRange],
    host_memory: Sequence[AddressRange] = (),
    repeats_of_second: Sequence[Sequence[NodeParams]] = (),
) -> ScanResult:
    """Find the words of node parameters that point to inputs.

    Args:
        first: The nodes of a capture with the first set of inputs.
        second: The nodes of a capture with the second set.
        repeats: The nodes of one or more further captures with the first set.
        inputs: The memory of each input in the first and in the second set.
        device_memory: All memory that torch's allocator has reserved on devices, as sorted ranges.
        host_memory: The memory on the host that this process may write to, as sorted ranges.
        repeats_of_second: The nodes of further captures with the second set.

    Raises:
        NotPatchable: The captures run different operations, or a word that looks like the address of an input does not change
            with it.
        UnexplainedDifference: A word differs for an unknown reason.
    """
    counts = [len(nodes) for nodes in (first, second, *repeats, *repeats_of_second)]
    if len(set(counts)) > 1:
        raise NotPatchable(f"captures of the same function have different numbers of nodes: {', '.join(map(str, counts))}")
    found: list[InputPointer | StaleBytes] = []
    all_nodes = zip(first, second, *repeats, *repeats_of_second, strict=True)
    for index, (node, second_node, *repeated) in enumerate(all_nodes):
        if node.kind == "other":
            raise NotPatchable(f"node {index} of the graph is not a kernel, memcpy or memset node, so dynx cannot patch it")
        if any(node[:2] != other[:2] for other in (second_node, *repeated)):
            operations = f"{node.operation} and {second_node.operation}"
            raise NotPatchable(f"captures of the same function differ in node {index}, which runs {operations}")
        of_first, of_second = repeated[: len(repeats)], repeated[len(repeats) :]
        found += _scan_node(index, (node, *of_first), (second_node, *of_second), inputs, device_memory, host_memory)
    pointers = [entry for entry in found if isinstance(entry, InputPointer)]
    return ScanResult(pointers, [entry for entry in found if isinstance(entry, StaleBytes)])


def points_into(nodes: Sequence[NodeParams], ranges: Sequence[AddressRange]) -> bool:
    """Return whether a word of the nodes' parameters is an address in one of the ranges."""
    for _, _, fields in nodes:
        for begin, data in fields:
            for offset in range(-begin % _WORD, len(data) - _WORD + 1, _WORD):
                address = int.from_bytes(data[offset : offset + _WORD], "little")
                if any(memory.start <= address < memory.end for memory in ranges):
                    return True
    return False


def _scan_node(
    index: int,
    firsts: Sequence[NodeParams],
    seconds: Sequence[NodeParams],
    inputs: Sequence[tuple[AddressRange, AddressRange]],
    device_memory: Sequence[AddressRange],
    host_memory: Sequence[AddressRange],
) -> Iterator[InputPointer | StaleBytes]:
    """Yield the input pointers and stale padding of one node, from captures with the first and the second set of inputs."""
    memories = device_memory, host_memory
    for field, captures in enumerate(zip(*(node.fields for node in (*firsts, *seconds)), strict=True)):
        of_first, of_second = captures[: len(firsts)], captures[len(firsts) :]
        begin = captures[0][0]
        for offset in range(-begin % _WORD, len(captures[0][1]) - _WORD + 1, _WORD):
            (word, is_first_stable), (second_word, is_second_stable) = (
                _word_at(offset, data) for data in (of_first, of_second)
            )
            is_stable = is_first_stable and is_second_stable
            tensor = _input_at(word, second_word, inputs) if is_stable else None
            if tensor is not None:
                if firsts[0].kind == "memset":
                    raise NotPatchable(f"memset node {index} of the graph writes to an input, and dynx patches no memset nodes")
                yield InputPointer(index, field, offset, tensor, word - inputs[tensor][0].start)
            elif any(first.start <= word < first.end for first, _ in inputs):
                raise MisleadingWord(
                    f"a parameter of graph node {index} looks like the address of an input,"
                    " but does not change with that address"
                )
            elif word != second_word and is_stable:
                if word == 0 and any(_contains(memory, second_word) for memory in memories):
                    continue  # a pointer to an input is never 0
                is_second_input = any(second.start <= word < second.end for _, second in inputs)
                if second_word == 0 and not is_second_input and any(_contains(memory, word) for memory in memories):
                    continue
                is_internal = _contains(device_memory, word) and _contains(device_memory, second_word)
                if is_internal and all(second_word - word != range2.start - range1.start for range1, range2 in inputs):
                    continue
                part = None if is_internal else _stale_part(word, second_word, device_memory, host_memory)
                if part is None:
                    node_word = f"word {offset} of parameter {field} of graph node {index}"
                    raise UnexplainedDifference(f"{node_word} differs between captures: {word:#x} and {second_word:#x}")
                yield StaleBytes(index, field, offset + part.start, second_word.to_bytes(_WORD, "little")[part])
        yield from _scan_partial_words(index, field, of_first, of_second)


def _stale_part(
    word: int, second_word: int, device_memory: Sequence[AddressRange], host_memory: Sequence[AddressRange]
) -> slice | None:
    """Return which bytes of a word are padding, given its different values in two captures; None if that is not known.

    All 8 bytes if both values are host addresses; 4 bytes if only these differ, and are the lower half of addresses.
    """
    if _contains(host_memory, word) and _contains(host_memory, second_word):
        return slice(0, _WORD)
    for half in (0, 4):
        first_half, second_half = (value >> 8 * half & _LOW_HALF for value in (word, second_word))
        is_only_half = (word ^ second_word) & ~(_LOW_HALF << 8 * half) == 0
        if is_only_half and any(
            _is_lower_half(first_half, ranges) and _is_lower_half(second_half, ranges)
            for ranges in (device_memory, host_memory)
        ):
            return slice(half, half + 4)
    return None


def _is_lower_half(number: int, ranges: Sequence[AddressRange]) -> bool:
    """Return whether a number of four bytes is the lower half of an address in one of the ranges."""
    return any(memory.start <= (end & ~_LOW_HALF | number) < memory.end for memory in ranges for end in memory)


Field = tuple[int, bytes]


def _word_at(offset: int, captures: Sequence[Field]) -> tuple[int, bool]:
    """Return the word at an offset of a parameter in the first capture, and whether all captures have the same word."""
    word, *others = (data[offset : offset + _WORD] for _, data in captures)
    return int.from_bytes(word, "little"), all(other == word for other in others)


def _scan_partial_words(index: int, field: int, of_first: Sequence[Field], of_second: Sequence[Field]) -> Iterator[StaleBytes]:
    """Yield differing bytes at both ends of a parameter, outside of its aligned 8-byte words: too few to hold an address."""
    begin, size = of_first[0][0], len(of_first[0][1])
    head = min(-begin % _WORD, size)
    for part in (slice(0, head), slice(head + (size - head) // _WORD * _WORD, size)):
        (first, *repeats), (second, *repeats_of_second) = ([data[part] for _, data in each] for each in (of_first, of_second))
        is_stable = all(first == repeat for repeat in repeats) and all(second == repeat for repeat in repeats_of_second)
        if first != second and is_stable:
            yield StaleBytes(index, field, part.start, second)


def _input_at(word: int, second_word: int, inputs: Sequence[tuple[AddressRange, AddressRange]]) -> int | None:
    """Return the index of the input that both words point into (or to its end) at the same offset; None if there is none."""
    pointed = [
        index
        for index, (first, second) in enumerate(inputs)
        if first.start <= word <= first.end and second_word - second.start == word - first.start
    ]
    return next((index for index in pointed if word < inputs[index][0].end), next(iter(pointed), None))


def _contains(ranges: Sequence[AddressRange], address: int) -> bool:
    index = bisect_right(ranges, (address, 1 << 64)) - 1
    return index >= 0 and ranges[index].start <= address < ranges[index].end
