"""The pointer scan finds pointers to inputs in synthetic kernel parameters, and rejects differences that it cannot explain."""

from __future__ import annotations

import random

import pytest

from dynx.cudagraphs._runtime.patching.pointer_scan import (
    AddressRange,
    InputPointer,
    NodeParams,
    NotPatchable,
    StaleBytes,
    UnexplainedDifference,
    find_input_pointers,
)

INPUTS = [
    (AddressRange(0x1000, 0x1100), AddressRange(0x5000, 0x5100)),
    (AddressRange(0x2000, 0x2008), AddressRange(0x6000, 0x6008)),
]
MEMORY = [AddressRange(0x8000, 0x9000), AddressRange(0xA000, 0xB000), AddressRange(0xC000, 0xD000)]


def words(*values):
    return b"".join(value.to_bytes(8, "little") for value in values)


def kernel(*fields, operation=("gemm", 4)):
    return NodeParams("kernel", operation, tuple(field if isinstance(field, tuple) else (0, field) for field in fields))


def sites(first, second, again=None):
    return scan(first, second, again).pointers


def scan(first, second, again=None):
    return find_input_pointers([first], [second], [[first if again is None else again]], INPUTS, MEMORY)


def test_scan_finds_input_pointers_in_kernel_params_with_their_offsets():
    first, second = kernel(words(0x1000, 7), words(0x2000)), kernel(words(0x5000, 7), words(0x6000))
    assert sites(first, second) == [InputPointer(0, 0, 0, 0, 0), InputPointer(0, 1, 0, 1, 0)]
    assert sites(kernel(words(1, 0x1040)), kernel(words(1, 0x5040))) == [InputPointer(0, 0, 8, 0, 0x40)]


def test_scan_aligns_words_by_the_offset_of_the_kernel_parameter():
    first, second = (12, b"abcd" + words(0x1008)), (12, b"abcd" + words(0x5008))
    assert sites(kernel(first), kernel(second)) == [InputPointer(0, 0, 4, 0, 8)]


NEIGHBOURS = [
    (AddressRange(0x1000, 0x1100), AddressRange(0x6000, 0x6100)),
    (AddressRange(0x1100, 0x1200), AddressRange(0x5000, 0x5100)),
]


def test_the_end_of_an_input_is_not_taken_for_the_beginning_of_the_next_one():
    """Kernels that count back from the end are given that address, which may be where another input begins."""
    first, second = kernel(words(0x1100, 0x1100)), kernel(words(0x6100, 0x5000))
    result = find_input_pointers([first], [second], [[first]], NEIGHBOURS, MEMORY)
    assert result.pointers == [InputPointer(0, 0, 0, 0, 0x100), InputPointer(0, 0, 8, 1, 0)]


def test_an_address_between_two_inputs_that_moves_with_neither_is_refused():
    first, second = kernel(words(0x1100)), kernel(words(0x5100))
    with pytest.raises(NotPatchable, match="does not change with that address"):
        find_input_pointers([first], [second], [[first]], NEIGHBOURS, MEMORY)


def test_scan_ignores_words_that_differ_between_captures_with_the_second_inputs():
    first, second, again = (kernel(words(number)) for number in (0, 0xFFFF, 0))
    with pytest.raises(UnexplainedDifference):
        find_input_pointers([first], [second], [[first]], INPUTS, MEMORY)
    assert find_input_pointers([first], [second], [[first]], INPUTS, MEMORY, (), [[again]]) == ([], [])


def test_scan_rejects_an_input_pointer_that_differs_between_captures_with_the_second_inputs():
    first, second, again = kernel(words(0x1000)), kernel(words(0x5000)), kernel(words(0x5008))
    with pytest.raises(NotPatchable, match="does not change with that address"):
        find_input_pointers([first], [second], [[first]], INPUTS, MEMORY, (), [[again]])


def test_scan_ignores_differing_pointers_to_other_device_memory():
    assert sites(kernel(words(0x8010)), kernel(words(0xA010)), kernel(words(0x8810))) == []
    assert sites(kernel(words(0x8010)), kernel(words(0xA010)), kernel(words(0x8010))) == []


def test_scan_ignores_words_that_differ_between_captures_with_equal_inputs():
    assert sites(kernel(words(0x3FF00000)), kernel(words(0x3FF00001)), kernel(words(0x3FF00002))) == []


HIGH = [
    AddressRange(0x7F00_2000_0000, 0x7F00_2010_0000),
    AddressRange(0x7F00_FFF0_0000, 0x7F01_0010_0000),
]  # the second crosses a 4 GiB boundary


@pytest.mark.parametrize("half_at", [0, 4])
@pytest.mark.parametrize("lower", [(0x2000_0000, 0x200F_FFF8), (0xFFF0_0000, 0x8)])
def test_scan_treats_the_stale_half_of_an_address_as_padding(half_at, lower):
    first, second = (kernel(words(0, 0x3F80_0000 << 32 - 8 * half_at | half << 8 * half_at)) for half in lower)
    assert find_input_pointers([first], [second], [[first]], INPUTS, HIGH) == (
        [],
        [StaleBytes(0, 0, 8 + half_at, lower[1].to_bytes(4, "little"))],
    )


def test_scan_treats_bytes_outside_of_aligned_words_as_padding():
    first, second = (kernel((4, b"ab" + padding + words(7) + b"c")) for padding in (b"cd", b"ef"))
    assert find_input_pointers([first], [second], [[first]], INPUTS, MEMORY) == ([], [StaleBytes(0, 0, 0, b"abef")])


def test_scan_treats_host_addresses_as_padding():
    first, second = kernel(words(0x31CA_E8C0)), kernel(words(0x31CA_D840))
    host = [AddressRange(0x31C0_0000, 0x31D0_0000)]
    assert find_input_pointers([first], [second], [[first]], INPUTS, MEMORY, host).stale == [
        StaleBytes(0, 0, 0, words(0x31CA_D840))
    ]
    with pytest.raises(UnexplainedDifference):
        find_input_pointers([first], [second], [[first]], INPUTS, MEMORY, [AddressRange(0x31C0_0000, 0x31CA_D000)])


@pytest.mark.parametrize("address", [0x31CA_E8C0, MEMORY[0].start + 8])
def test_scan_ignores_an_address_that_is_zero_in_one_capture(address):
    host = [AddressRange(0x31C0_0000, 0x31D0_0000)]
    for word_in_first, word_in_second in ((0, address), (address, 0)):
        images = kernel(words(word_in_first)), kernel(words(word_in_second))
        assert find_input_pointers([images[0]], [images[1]], [[images[0]]], INPUTS, MEMORY, host) == ([], [])


@pytest.mark.parametrize("word", [INPUTS[0][1].start, 0x77])
def test_scan_rejects_an_input_pointer_or_number_that_is_zero_in_one_capture(word):
    first, second = kernel(words(0)), kernel(words(word))
    with pytest.raises(UnexplainedDifference):
        find_input_pointers([first], [second], [[first]], INPUTS, MEMORY)


@pytest.mark.parametrize("lower", [(0x2000_0000, 0x2010_0000), (0xFFF0_0000, 0x10_0000), (0x4000_0000, 0x2000_0000)])
def test_kernel_params_are_not_patchable_if_32_bits_that_are_no_address_differ_between_captures(lower):
    first, second = (kernel(words(0x3F80_0000 << 32 | half)) for half in lower)
    with pytest.raises(NotPatchable, match="word 0 of parameter 0"):
        find_input_pointers([first], [second], [[first]], INPUTS, HIGH)


def test_kernel_params_are_not_patchable_if_all_64_bits_of_a_non_address_differ():
    first, second = kernel(words(0x1_2000_0000)), kernel(words(0x2_2000_0008))
    with pytest.raises(NotPatchable, match="word 0 of parameter 0"):
        find_input_pointers([first], [second], [[first]], INPUTS, HIGH)


REFUSED = {
    "a number that differs": (kernel(words(0x3FF00000)), kernel(words(0x3FF00001)), "word 0 of parameter 0"),
    "a pointer that leaves device memory": (kernel(words(0x8010)), kernel(words(0xF010)), "word 0 of parameter 0"),
    "a pointer that moves as an input does": (kernel(words(0x8010)), kernel(words(0x8010 + 0x4000)), "word 0 of parameter 0"),
    "an unchanged input pointer": (kernel(words(0x1000)), kernel(words(0x1000)), "does not change with that address"),
    "an input pointer with another offset": (kernel(words(0x1000)), kernel(words(0x5008)), "does not change with that address"),
    "another kernel function": (kernel(words(1)), kernel(words(1), operation=("gemv", 4)), "differ in node 0"),
    "a memset of an input": (
        NodeParams("memset", (), ((0, words(0x1000)),)),
        NodeParams("memset", (), ((0, words(0x5000)),)),
        "memset node 0 of the graph writes to an input",
    ),
    "a host function": (NodeParams("other", ()), NodeParams("other", ()), "not a kernel"),
}


@pytest.mark.parametrize(("first", "second", "reason"), REFUSED.values(), ids=REFUSED)
def test_scan_rejects_graphs_that_it_cannot_patch(first, second, reason):
    with pytest.raises(NotPatchable, match=reason):
        sites(first, second)


def test_scan_of_more_captures_ignores_words_that_differ_at_random():
    first, second = kernel(words(0x3FF00000)), kernel(words(0x3FF00001))
    with pytest.raises(UnexplainedDifference):
        find_input_pointers([first], [second], [[first], [first]], INPUTS, MEMORY)
    assert find_input_pointers([first], [second], [[first], [first], [second]], INPUTS, MEMORY) == ([], [])


def test_scan_rejects_an_input_pointer_that_differs_between_captures_with_equal_inputs():
    with pytest.raises(NotPatchable, match="does not change with that address"):
        sites(kernel(words(0x1000)), kernel(words(0x5000)), kernel(words(0x77)))


def test_scan_rejects_captures_with_different_node_counts():
    with pytest.raises(NotPatchable, match="numbers of nodes: 1, 2, 1"):
        find_input_pointers([kernel()], [kernel(), kernel()], [[kernel()]], INPUTS, MEMORY)


@pytest.mark.parametrize("seed", range(20))
def test_scan_of_random_captures_finds_exactly_the_input_pointers(seed):
    """A single word that differs without explanation in one of the captures is rejected."""
    rng = random.Random(seed)
    expected, images = [], ([], [], [])
    for number in range(10):
        fields = ([], [], [])
        for field in range(rng.randint(1, 4)):
            row = ([], [], [])
            for word in range(rng.randint(1, 6)):
                kind = rng.choice(["same", "input", "memory", "noise"])
                if kind == "input":
                    tensor, delta = rng.choice([(0, rng.randrange(0x100)), (1, rng.randrange(8))])
                    values = [INPUTS[tensor][0].start + delta, INPUTS[tensor][1].start + delta, INPUTS[tensor][0].start + delta]
                    expected.append(InputPointer(number, field, 8 * word, tensor, delta))
                elif kind == "memory":
                    values = [rng.choice(MEMORY).start + rng.randrange(0x1000) for _ in range(3)]
                elif kind == "noise":
                    values = rng.sample(range(1 << 40, 1 << 41), 3)
                else:
                    values = [rng.randrange(1 << 20, 1 << 40)] * 3
                for into, value in zip(row, values, strict=True):
                    into.append(value)
            for into, values in zip(fields, row, strict=True):
                into.append(words(*values))
        for into, image in zip(images, fields, strict=True):
            into.append(kernel(*image))
    assert find_input_pointers(images[0], images[1], images[2:], INPUTS, MEMORY) == (expected, [])
    images[1][3] = kernel(*[(0, data) for _, data in images[1][3].fields[:-1]], words(1 << 50))
    images[0][3] = kernel(*[(0, data) for _, data in images[0][3].fields[:-1]], words(1 << 51))
    images[2][3] = images[0][3]
    with pytest.raises(NotPatchable):
        find_input_pointers(images[0], images[1], images[2:], INPUTS, MEMORY)
