"""Apply a profile: torch starts with the dynamic sizes in the profile instead of learning them by recompiles."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from dynx._handle import Handle
from dynx._reading.user_location import user_stacklevel
from dynx._torch.shapes.closure_hash import stabilize
from dynx._torch.shapes.code_state import RawCodeId, read_state, seed_state
from dynx._torch.shapes.known_sizes import Begun, CodeKey, begun, code_key
from dynx._torch.shapes.size_choice import choose_sizes
from dynx.errors import DynxWarning, UsageError
from dynx.pgo._known_graphs import always_fixed, chooser
from dynx.pgo._match import is_elsewhere, matches, present_frame
from dynx.pgo._merge import forgotten
from dynx.records.location import short_path
from dynx.records.profile import FrameKey, FrameMatch, FrameProfile, ProfileData, SourceProfile

_SHOWN = 3  # functions in a message

_applied: list[AppliedProfile] = []


class AppliedProfile(Handle):
    """Handle of an applied profile; `matches` lists which of its functions are in the current source files.

    `remove()` stops applying the profile; sizes that are already dynamic stay dynamic until `torch._dynamo.reset()`.
    """

    def __init__(self, profile: ProfileData, found: Sequence[FrameMatch]) -> None:
        self.profile, self.matches = profile, tuple(found)
        self.frames = tuple(frame for frame in map(present_frame, found) if frame is not None)  # as torch identifies them now
        self._state = {_code_id(frame): frame.sources for frame in self.frames}
        closures = stabilize() if any(frame.closure is not None for frame in self.frames) else None
        seeding = seed_state(lambda: self._state)
        graphs = {code_key(_code_id(frame)): frame.graphs for frame in self.frames if frame.graphs}
        choosing = choose_sizes(chooser(graphs)) if graphs else None
        self._handles = [handle for handle in (seeding, choosing, closures) if handle is not None]
        unused = (match.frame for match in found if match.state == "not portable")
        self._begun = Begun(short_path(profile.path) if profile.path else "a profile", _sizes(self.frames), _sizes(unused))
        begun.append(self._begun)
        _applied.append(self)

    @property
    def replaced(self) -> frozenset[FrameKey]:
        """The keys (`FrameProfile.key`) in the profile that are outdated, since the function was moved, changed or removed."""
        gone = (match for match in self.matches if match.state != "same" and not is_elsewhere(match))
        return frozenset(match.frame.key for match in gone if match.state != "not portable")

    def remove(self) -> None:
        """Stop applying the profile, from the next `torch._dynamo.reset()` on."""
        for handle in self._handles:
            handle.remove()
        if self in _applied:
            _applied.remove(self)
            begun.remove(self._begun)

    def __repr__(self) -> str:
        state = "applied" if self in _applied else "removed"
        return f"<profile, {state}: {_counted(self.matches)}>"


def applied() -> tuple[AppliedProfile, ...]:
    """Return the handles of the applied profiles, the first applied first."""
    return tuple(_applied)


def apply(profile: ProfileData, *, strict: bool) -> AppliedProfile:
    """Apply a profile; see `Profile.apply`."""
    _require_no_compilation()
    found = tuple(matches(profile.frames))
    if strict and (others := [match for match in found if match.state != "same"]):
        raise UsageError(
            f"the profile does not match the source files: {_counted(found)}; {_listed(others)}\n"
            "  run the program once without the profile and save a new one, or pass strict=False"
        )
    if text := notice(found):
        warnings.warn(f"the profile does not match: {text}; save a new profile", DynxWarning, stacklevel=user_stacklevel())
    return AppliedProfile(profile, found)


def applied_without_notice(profile: ProfileData) -> AppliedProfile:
    """Apply a profile without warning about differences from the source files, since the caller saves an updated profile."""
    _require_no_compilation()
    return AppliedProfile(profile, tuple(matches(profile.frames)))


def notice(found: Sequence[FrameMatch]) -> str | None:
    """Return a message: which functions do not match the source files, and whether their sizes are used. None if all match."""
    others = [match for match in found if match.state != "same"]
    if not others:
        return None
    used = [match for match in others if match.state in ("moved", "changed")]
    unused = [match for match in others if match not in used and not is_elsewhere(match)]
    texts = {
        "moved and changed functions are used": used,
        "those without a file are used if torch compiles a file with the same content": [*filter(is_elsewhere, others)],
        "the others are not used" if len(unused) < len(others) else "they are not used": unused,
    }
    text = "; ".join(text for text, concerned in texts.items() if concerned)
    return f"functions of the profile: {_counted(found)}; {_listed(others)}\n  {text}"


def _require_no_compilation() -> None:
    if read_state():  # torch has compiled a function, or loaded a profile
        raise UsageError(
            "torch has already compiled functions, so it is too late to apply a profile\n"
            "  apply the profile before the first call of a compiled function, or call torch._dynamo.reset() first"
        )


def _sizes(frames: Iterable[FrameProfile]) -> Mapping[CodeKey, Mapping[str, SourceProfile]]:
    """Return the sizes in the profile by function; advice rules read them to find dynamic sizes that should be static.

    A size that every graph specialized is left out if it must stay dynamic: the graphs in the caches on disk were compiled
    with this size dynamic, and torch would not find these graphs if the size were static.
    """
    frames = tuple(frames)
    fixed = {frame.key: always_fixed(frame.graphs) for frame in frames}
    anywhere = set().union(*fixed.values())  # for functions that were only inlined into others

    def is_kept(frame: FrameProfile, source: str, dim: int | None) -> bool:
        return (source, dim) in (fixed[frame.key] if frame.graphs else anywhere)

    return {code_key(_code_id(frame)): frame.sources for frame in forgotten(frames, is_kept, with_graphs=False)}


def _code_id(frame: FrameProfile) -> RawCodeId:
    return RawCodeId(frame.file_hash, frame.line, frame.name, frame.closure, frame.file)


def _counted(found: Iterable[FrameMatch]) -> str:
    counts = Counter(match.state for match in found)
    return ", ".join(f"{count} {state}" for state, count in counts.items()) or "no functions"


def _listed(found: Sequence[FrameMatch]) -> str:
    shown = [f"{match.frame.qualname or match.frame.name} ({match.state}: {match.why})" for match in found[:_SHOWN]]
    return "; ".join(shown) + (f"; and {len(found) - _SHOWN} more" if len(found) > _SHOWN else "")
