"""Record where torch's own CUDA graphs (`mode="reduce-overhead"`) are skipped or recorded again, and why."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from dynx._handle import Handle
from dynx._reading.user_location import call_site, owner_of_file
from dynx._torch.trace_log.cudagraph_messages import CudagraphMessages
from dynx.records import Location, Record, Skip
from dynx.records.cudagraphs import SkipKind

_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<function>\S+)')
_SKIPPED = re.compile(r"skipping cudagraphs? due to (?P<why>.*?)\.?(?:\s+Found from\s*:|\s*$)", re.S)


class _Known(NamedTuple):
    pattern: str  # matched against torch's message
    reason: str
    advice: str
    kind: SkipKind = "operator"


_KNOWN = (
    _Known(
        r"cpu device",
        "skipped, because a tensor on the CPU is used in the graph",
        "create it on the GPU, or move it to the GPU before the call",
    ),
    _Known(
        r"mutated inputs",
        "skipped, because an input of the graph is changed in place",
        "return the new value instead of changing the argument, or keep the tensor as a buffer of the module",
    ),
    _Known(
        r"multiple devices",
        "skipped, because the graph has tensors on several devices",
        "compile the part of each device on its own",
    ),
    _Known(
        r"exceeding max re-recording limit",
        "skipped, because an input has a new address on each call: the limit of recordings is reached",
        "pass the same tensor on every call, changed in place with copy_(); do not replace parameters",
        "limit",
    ),
    _Known(
        r"distinct input size",
        "they record a graph for each input size",
        "pad inputs to a few sizes; or torch._inductor.config.triton.cudagraph_skip_dynamic_graphs = True",
        "limit",
    ),
    _Known(
        r"caching allocator", "skipped, because the caching allocator is off", "leave torch.cuda.caching_allocator_enable(True)"
    ),
)


def tree_skips(record: Callable[[Record], None]) -> Handle:
    """Pass a `Skip` to `record` for each graph that torch skips or records again, until `remove()` of the returned handle."""

    def report(message: str) -> None:
        if (skip := skip_of(message)) is not None:
            record(skip)

    return CudagraphMessages(report)


def skip_of(message: str) -> Skip | None:
    """Return the record for a message of torch's CUDA graphs; None if it is about something else."""
    skipped = _SKIPPED.search(message)
    known = next((each for each in _KNOWN if re.search(each.pattern, message)), None)
    if skipped is None and known is None:
        return None
    why = skipped["why"].strip() if skipped is not None else ""
    reason = known.reason if known is not None else f"skipped, because of {why}"
    advice = known.advice if known is not None else "see torch's message; compile what it names on its own"
    kind = known.kind if known is not None else "operator"
    return Skip(f"torch's CUDA graphs: {reason}", _location(message) or call_site(), advice, kind)


def _location(message: str) -> Location | None:
    """Return the innermost line of the user's code in the stack that a message ends with."""
    frames = [(match["file"], int(match["line"]), match["function"]) for match in _FRAME.finditer(message)]
    own = [frame for frame in frames if owner_of_file(frame[0]).kind == "user"] or frames
    return Location(*own[-1]) if own else None
