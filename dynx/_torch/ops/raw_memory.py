"""Search the memory of torch's CUDA allocator for addresses.

Torch: `torch._C._construct_storage_from_data_pointer`, as `torch._inductor.cudagraph_trees` uses it (2.11, 2.13, 2.15).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

_WORD = 8  # bytes
_CHUNK = 1 << 22  # words that are searched at a time; each needs about 20 bytes of temporary memory


def holds_address(segments: Sequence[tuple[int, int]], ranges: Sequence[tuple[int, int]], device: torch.device) -> bool:
    """Return whether any aligned 8-byte word in the memory segments is an address in one of the ranges.

    A segment is the start and end of memory of the allocator on the device; the end of a range of addresses is not included.
    """
    bounds = sorted(bound for start, end in _merged(ranges) for bound in (start, end))
    if not bounds:
        return False
    limits = torch.tensor(bounds, device=device)
    return any(bool((torch.bucketize(words, limits, right=True) % 2 == 1).any()) for words in _words(segments, device))


def _merged(ranges: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Merge ranges that overlap or touch, and drop empty ranges; return the result sorted."""
    merged: list[tuple[int, int]] = []
    for start, end in sorted(pair for pair in ranges if pair[0] < pair[1]):
        if merged and start <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        else:
            merged.append((start, end))
    return merged


def _words(segments: Sequence[tuple[int, int]], device: torch.device) -> Iterator[torch.Tensor]:
    for start, end in segments:
        storage = torch._C._construct_storage_from_data_pointer(start, device, end - start)
        words = torch.empty(0, dtype=torch.int64, device=device).set_(storage, 0, ((end - start) // _WORD,))
        yield from words.split(_CHUNK)
