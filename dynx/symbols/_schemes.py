"""Schemes: functions that compute the number in a symbol's name (77 in `s77`) from its source, such as `L['x'].size()[0]`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from hashlib import blake2b

from dynx.errors import UsageError

Scheme = Callable[[str, int], int]  # from the source and the attempt, see `install`, to a number

_MAX_ATTEMPTS = 64  # then the number above all used numbers is taken, so that allocation ends
_EXAMPLES = ("L['x'].size()[0]", "L['self'].scale")


def hashed(source: str, attempt: int, *, bits: int) -> int:
    """Return the first `bits` bits of the BLAKE2b hash of a source; if `attempt` is not 0, `attempt` is hashed too.

    Reference: BLAKE2b as in RFC 7693, `hashlib.blake2b`; it does not depend on PYTHONHASHSEED.
    """
    data = source.encode() if not attempt else b"%s\0%d" % (source.encode(), attempt)
    return int.from_bytes(blake2b(data, digest_size=8).digest()) >> (64 - bits)


SCHEMES: Mapping[str, Scheme] = {
    "blake63": partial(hashed, bits=63),  # with 1,000 sources in a graph, a collision has probability 5e-14
    "blake31": partial(hashed, bits=31),  # for 32-bit consumers; with 1,000 sources, a collision has probability 2e-4
}


def scheme_of(scheme: str | Scheme) -> Scheme:
    """Return the scheme with this name. If `scheme` is a function, test it on two example sources, and return it.

    Raises UsageError for unknown names, and for functions that do not return non-negative ints or differ between equal calls.
    """
    if isinstance(scheme, str):
        if scheme not in SCHEMES:
            known = ", ".join(SCHEMES)
            raise UsageError(f"no scheme is named {scheme!r}\n  use one of {known}, or a function (source, attempt) -> int")
        return SCHEMES[scheme]
    if not callable(scheme):
        raise UsageError(f"the scheme {scheme!r} is not callable\n  pass a name, or a function (source, attempt) -> number")
    for source in _EXAMPLES:
        if checked(scheme, source, 0) != checked(scheme, source, 0):
            raise UsageError(
                f"the scheme {scheme!r} returned two different numbers for the same source, {source}\n"
                "  compute the number from source and attempt only, so that symbols get equal names in every process"
            )
    return scheme


def allocator(scheme: Scheme) -> Callable[[str, set[int]], tuple[int, bool]]:
    """Return a function that chooses an unused number for a source; dynx's own schemes get a faster function."""
    if not isinstance(scheme, partial) or scheme.func is not hashed:
        return partial(allocated, scheme)
    unused_bits = 64 - scheme.keywords["bits"]

    def allocate(source: str, used: set[int]) -> tuple[int, bool]:  # `hashed`, inlined because it runs for each symbol
        number = int.from_bytes(blake2b(source.encode(), digest_size=8).digest()) >> unused_bits
        return (number, False) if number not in used else allocated(scheme, source, used)

    return allocate


def allocated(scheme: Scheme, source: str, used: set[int]) -> tuple[int, bool]:
    """Return an unused number for a source, and whether there was a collision: the first number from `scheme` was in `used`."""
    for attempt in range(_MAX_ATTEMPTS):
        number = checked(scheme, source, attempt)
        if number not in used:
            return number, attempt > 0
    return max(used) + 1, True


def checked(scheme: Scheme, source: str, attempt: int) -> int:
    number = scheme(source, attempt)
    if type(number) is not int or number < 0:
        raise UsageError(f"the scheme {scheme!r} returned {number!r} for {source}\n  return an int that is not negative")
    return number
