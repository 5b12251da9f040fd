"""Read torch's in-memory profile of dynamic sizes (PGO) as plain data, and add saved sizes to it.

Torch: `torch._dynamo.pgo`, alike in 2.11, 2.13 and 2.15 except that `CodeId` has a `closure_hash` from 2.13 on. The profile is
a dict: for each function (`CodeId`), it has sizes, strides and numbers by source. `torch._dynamo.reset()` empties it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import isfinite
from typing import Any, NamedTuple

from dynx._handle import Handle
from dynx._torch.capabilities import hook_point, require
from dynx._torch.hooks import Wrapping, is_retracing, wrap
from dynx._torch.shapes.closure_hash import hashes_closures
from dynx.records.profile import DYNAMIC, NOT_FINITE, Atom, Atoms, SourceProfile


class RawCodeId(NamedTuple):
    """The identity of a function in torch's PGO profile; torch compares identities without the path, `file`."""

    file_hash: str
    line: int
    name: str
    closure: int | None
    file: str


RawState = Mapping[RawCodeId, Mapping[str, SourceProfile]]


def read_state() -> dict[RawCodeId, dict[str, SourceProfile]]:
    """Return torch's profile of this process; functions without sizes are left out, and no profile is loaded from disk."""
    require("profile")
    from torch._dynamo import pgo

    return plain(pgo._CODE_STATE or {})


def plain(state: Any) -> dict[RawCodeId, dict[str, SourceProfile]]:
    """Convert torch's profile, or a profile of objects with the same attributes, to plain data.

    Raises AttributeError, TypeError or ValueError if it has another structure.
    """
    return {
        RawCodeId(code.file_hash, code.firstlineno, code.name, getattr(code, "closure_hash", None), code.filename): {
            source: plain_sizes(entry) for source, entry in known.automatic_dynamic.items()
        }
        for code, known in state.items()
        if known.automatic_dynamic
    }


def plain_sizes(entry: Any) -> SourceProfile:
    """Convert a `FrameStateSizeEntry`, what torch's profile has for one source, to plain data."""
    scalar = _atom(entry.scalar)
    if isinstance(scalar, int) and not -(2**63) <= scalar < 2**63:
        scalar = None  # torch has no symbol for such a number
    return SourceProfile(scalar, _atoms(entry.size), _atoms(entry.stride))


def _atoms(value: Any) -> Atoms:
    return tuple(map(_atom, value)) if isinstance(value, tuple) else _atom(value)


def _atom(value: Any) -> Atom:
    if isinstance(value, float):
        return value if isfinite(value) else str(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    kind = type(value).__name__
    if kind == "AutoDynamic":
        return DYNAMIC
    if kind == "AutoUnset":
        return None
    if kind == "InferStride" and type(value.dim) is int:
        return f"size({value.dim})*stride({value.dim})"
    raise ValueError(f"the profile contains {value!r}, which is not a size, stride or number")


class Seeding(Handle):
    """The handle that `seed_state` returns; `remove()` ends the additions to profiles."""

    def __init__(self, state: Callable[[], RawState], wrapping: Wrapping) -> None:
        self.state, self._wrapping = state, wrapping
        _seedings.append(self)

    def remove(self) -> None:
        self._wrapping.remove()
        if self in _seedings:
            _seedings.remove(self)


_seedings: list[Seeding] = []


def seed_state(state: Callable[[], RawState]) -> Seeding:
    """Add the sizes in `state()` to each PGO profile that torch loads or creates, until the handle is removed.

    Torch: `pgo.get_code_state()`, called for each value that may be dynamic, loads or creates it at first use and after resets.
    """
    require("code_state", "profile_entry", "profile_stride", "profile_dynamic", "profile_unset")
    seeded: list[Any] = [None]

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def get_code_state() -> Any:
            current = original()
            if current is not seeded[0] and not is_retracing():
                seeded[0] = current
                _add(current, state())
            return current

        return get_code_state

    return Seeding(state, wrap(hook_point("code_state"), make))


def add_seeds(profile: Any) -> None:
    """Add the sizes of all handles of `seed_state` that are not removed to a profile that torch has not created itself."""
    for seeding in tuple(_seedings):
        _add(profile, seeding.state())


def _add(current: Any, state: RawState) -> None:
    from torch._dynamo import pgo

    for code, sizes in state.items():
        closure = {"closure_hash": code.closure} if hashes_closures() else {}
        code_id = pgo.CodeId(code.file, code.line, code.name, code.file_hash, **closure)
        for source, raw in sizes.items():
            entry = pgo.FrameStateSizeEntry(*(_torch_atoms(value) for value in raw[:3]))
            known = current[code_id].automatic_dynamic[source]
            known |= entry  # torch's own join
            for kept in ("excluded_sizes", "excluded_scalar"):  # values with a static graph, which this process lacks
                if getattr(known, kept, None) is not None:
                    setattr(known, kept, None)


def _torch_atoms(value: Atoms) -> Any:
    from torch._dynamo import pgo

    if isinstance(value, tuple):
        return tuple(map(_torch_atoms, value))
    if value is None:
        return pgo.auto_unset
    if not isinstance(value, str):
        return value
    if value == DYNAMIC:
        return pgo.auto_dynamic
    if value in NOT_FINITE:
        return float(value)
    return pgo.InferStride(int(value[len("size(") : value.index(")")]))
