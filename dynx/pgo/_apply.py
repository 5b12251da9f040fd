"""Apply a profile: torch begins with its knowledge of dynamic sizes instead of learning it by recompiles."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from dynx._handle import Handle
from dynx._torch.shapes.closure_hash import stabilize
from dynx._torch.shapes.code_state import RawCodeId, has_compiled, seed_state
from dynx._torch.shapes.known_sizes import Begun, CodeKey, begun, code_key
from dynx._trace.user_location import user_stacklevel
from dynx.errors import DynxWarning, UsageError
from dynx.pgo._match import matches, present_frame
from dynx.records.location import short_path
from dynx.records.profile import FrameMatch, FrameProfile, ProfileData, SourceProfile

_SHOWN = 3  # functions in a message

_applied: list[AppliedProfile] = []


class AppliedProfile(Handle):
    """Handle of an applied profile: `matches` says which of its functions are in the present source files.

    `remove()` ends its effect on torch's next profile; sizes that are dynamic already stay so until `torch._dynamo.reset()`.
    """

    def __init__(self, profile: ProfileData, found: Sequence[FrameMatch]) -> None:
        self.profile, self.matches = profile, tuple(found)
        self.frames = tuple(frame for frame in map(present_frame, found) if frame is not None)  # as torch identifies them now
        self._state = {_code_id(frame): frame.sources for frame in self.frames}
        self._closures = stabilize() if any(frame.closure is not None for frame in self.frames) else None
        self._seeding = seed_state(lambda: self._state)
        unused = (match.frame for match in found if match.state == "not portable")
        self._begun = Begun(short_path(profile.path) if profile.path else "a profile", _sizes(self.frames), _sizes(unused))
        begun.append(self._begun)
        _applied.append(self)

    def remove(self) -> None:
        """Do not use the profile any more, from the next `torch._dynamo.reset()` on."""
        self._seeding.remove()
        if self._closures is not None:
            self._closures.remove()
        if self in _applied:
            _applied.remove(self)
            begun.remove(self._begun)

    def __repr__(self) -> str:
        state = "applied" if self in _applied else "removed"
        return f"<profile, {state}: {_counted(self.matches)}>"


def applied() -> tuple[AppliedProfile, ...]:
    """Return the handles of the profiles that are applied, in the order in which they were."""
    return tuple(_applied)


def apply(profile: ProfileData, *, strict: bool) -> AppliedProfile:
    """Apply a profile; see `Profile.apply`."""
    if has_compiled():
        raise UsageError(
            "torch has compiled functions already, so that a profile comes too late\n"
            "  apply it before the first call of a compiled function, or call torch._dynamo.reset() before"
        )
    found = tuple(matches(profile.frames))
    others = [match for match in found if match.state != "same"]
    if others and strict:
        raise UsageError(
            f"the profile is not of these source files: {_counted(found)}; {_listed(others)}\n"
            "  run the program once without the profile and save a new one, or pass strict=False"
        )
    if others:
        text = f"functions of the profile: {_counted(found)}; {_listed(others)}"
        text += "\n  moved and changed functions are used, the others are not: save a new profile"
        warnings.warn(text, DynxWarning, stacklevel=user_stacklevel())
    return AppliedProfile(profile, found)


def _sizes(frames: Iterable[FrameProfile]) -> Mapping[CodeKey, Mapping[str, SourceProfile]]:
    return {code_key(_code_id(frame)): frame.sources for frame in frames}


def _code_id(frame: FrameProfile) -> RawCodeId:
    return RawCodeId(frame.file_hash, frame.line, frame.name, frame.closure, frame.file)


def _counted(found: Iterable[FrameMatch]) -> str:
    counts = Counter(match.state for match in found)
    return ", ".join(f"{count} {state}" for state, count in counts.items()) or "no functions"


def _listed(found: Sequence[FrameMatch]) -> str:
    shown = [f"{match.frame.qualname or match.frame.name} ({match.state}: {match.why})" for match in found[:_SHOWN]]
    return "; ".join(shown) + (f"; and {len(found) - _SHOWN} more" if len(found) > _SHOWN else "")
