"""`Profile`: a portable profile of dynamic sizes."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from dynx.errors import BadProfile, UsageError
from dynx.pgo import _json, _pickled
from dynx.pgo._explain import explained
from dynx.pgo._match import described, matches
from dynx.pgo._merge import changes, forgotten, join_frames, joined
from dynx.records.profile import (
    DYNAMIC,
    DynamicSizes,
    FrameKey,
    FrameProfile,
    ProfileData,
    ProfileDiff,
    ProfileMatches,
    PrunableSize,
)

if TYPE_CHECKING:
    from dynx.pgo._apply import AppliedProfile

Sizes = str | Iterable[PrunableSize]  # a regular expression of sources, or sizes that `Recorder.prunable` returned


@dataclass(frozen=True, slots=True)
class Profile(ProfileData):
    """A profile of dynamic sizes: which sizes of a program are static or dynamic, by function and source.

    torch keeps such a profile (PGO, profile-guided optimization) as a pickle for one job and rank. A `Profile` is saved as JSON
    that can be read, compared, merged over runs and ranks, and applied in another process or checkout. That process does not
    recompile to learn which sizes are dynamic: what was dynamic at the end of the recorded runs is dynamic from the start.

    Example:
        >>> import os, tempfile, torch
        >>> from dynx import pgo
        >>> torch._dynamo.reset()
        >>> double = torch.compile(lambda x: x * 2, backend="eager")
        >>> _ = double(torch.ones(4)), double(torch.ones(6))  # the second length makes size 0 dynamic
        >>> profile = pgo.Profile.capture()
        >>> profile.frames[0].sources["L['x']"].size
        ('dynamic',)
        >>> path = os.path.join(tempfile.mkdtemp(), "profile.json")
        >>> profile.save(path)
        >>> pgo.Profile.load(path) == profile
        True
    """

    @classmethod
    def capture(cls) -> Profile:
        """Return torch's profile of this process, since its first compilation or the last `torch._dynamo.reset()`.

        It does not contain the values that made a size dynamic, since torch drops them; `pgo.record` keeps them.

        Raises UnsupportedTorch if torch has no `torch._dynamo.pgo`.
        """
        import torch

        from dynx._torch.shapes.code_state import read_state

        return cls._of_state(read_state(), (str(torch.__version__),))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Profile:
        """Return the profile in a JSON file that `save` wrote.

        Raises OSError if the file cannot be read, and BadProfile if it is damaged, too large or not a profile.
        """
        data = _bytes_of(path)
        try:
            found = _json.read(data)
        except _pickled.InvalidProfile as error:
            hint = "read files of torch with Profile.from_pickle" if data[:1] == b"\x80" else "save the profile again"
            raise BadProfile(f"{path} is not a profile: {error}\n  {hint}") from None
        return cls(join_frames(found.frames), found.runs, found.torch, os.fspath(path), extra=found.extra)

    @classmethod
    def from_pickle(cls, path: str | os.PathLike[str]) -> Profile:
        """Return the profile in a file `code_state_….pkl` that torch wrote; nothing that the file names is executed.

        Raises OSError if the file cannot be read, and BadProfile if it contains anything but a profile.
        """
        from dynx._torch.shapes.code_state import plain

        try:
            written = cls._of_state(plain(_pickled.read(_bytes_of(path))), ())
            checked = _json.read(_json.write(written).encode())  # checks every value
            return replace(written, frames=checked.frames, path=os.fspath(path))
        except (AttributeError, TypeError, ValueError, RecursionError) as error:
            raise BadProfile(f"{path} is not a profile of torch: {error}\n  pass a file code_state_….pkl of torch") from None

    @classmethod
    def _of_state(cls, state: Mapping[Any, Any], versions: tuple[str, ...]) -> Profile:
        frames = [
            FrameProfile(code.file, code.file_hash, code.name, code.line, code.closure, sources=sources)
            for code, sources in state.items()
        ]
        return cls(join_frames(described(frames)), torch=versions)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the profile as JSON, atomically: another process reads the old or the new file, never a part.

        Raises OSError if the file cannot be written or its folder does not exist; an existing file is then unchanged.
        """
        target = Path(os.path.realpath(path))  # keeps a symbolic link
        require_folder(target)
        draft = target.with_name(f".{uuid4().hex}.draft")
        try:
            draft.write_text(_json.write(self), encoding="utf-8")
            draft.replace(target)
        except OSError:
            draft.unlink(missing_ok=True)
            raise

    def merge(self, *others: ProfileData) -> Profile:
        """Join this profile with others as torch does: a size with two different values is dynamic.

        The order of profiles does not matter, and a profile that is merged twice counts once.
        """
        data = joined((self, *others))
        return type(self)(data.frames, data.runs, data.torch, extra=data.extra)

    def without(self, keys: Collection[FrameKey]) -> Profile:
        """Return the profile without the functions whose `FrameProfile.key` is in `keys`, such as functions that are gone."""
        return replace(self, frames=tuple(frame for frame in self.frames if frame.key not in keys))

    def diff(self, other: ProfileData) -> ProfileDiff:
        """Return the sizes, ints and floats in which `other` differs from this profile, sorted by function and source."""
        return ProfileDiff(tuple(changes(self, other)))

    def explain(self, source: str | None = None, dim: int | None = None) -> DynamicSizes:
        """Return each dynamic size, int and float with the values that it had, and the run and compile id of each value.

        Args:
            source: report only this source: `L['x']`, or `x` for short. Default: all.
            dim: report only sizes of this dim. Default: all.
        """
        return DynamicSizes(tuple(explained(self, source, dim)), self.runs)

    def prune(self, *, keep: Sizes | None = None, drop: Sizes | None = None) -> Profile:
        """Return the profile without some dynamic sizes: the sizes that `drop` selects or that `keep` does not select.

        In the next process, a removed size is static until it has a second value, as in a program without a profile.

        Args:
            keep: a regular expression that the whole source has to match, such as `L['x']` with its brackets escaped; or sizes
                that `Recorder.prunable` returned. Default: all.
            drop: the same types as `keep`. Default: none.

        Raises:
            UsageError: a regular expression is invalid.
        """
        kept, dropped = _selection(keep), _selection(drop)

        def is_forgotten(frame: FrameProfile, source: str, dim: int | None) -> bool:
            return (keep is not None and not kept(frame, source, dim)) or (drop is not None and dropped(frame, source, dim))

        with_graphs = isinstance(keep, str) or isinstance(drop, str)  # chosen by the user, not because a line specialized them
        return replace(self, frames=tuple(forgotten(self.frames, is_forgotten, with_graphs=with_graphs)))

    def apply(self, *, strict: bool = False) -> AppliedProfile:
        """Make torch start with this profile in this process, also after `torch._dynamo.reset()`, until the handle is removed.

        torch finds a function by the content of its file, its line number and name. If a file has changed, the sizes apply to
        the function with the same text, or else the same qualified name; a `DynxWarning` lists functions that differ. Functions
        with a closure get a hash that is the same in every process, see `stable_closure_hash`.

        Args:
            strict: raise instead of warning.

        Raises:
            UsageError: torch has already compiled a function; or with `strict`, a function differs in the source.
            UnsupportedTorch: torch has no `torch._dynamo.pgo`.
        """
        from dynx.pgo._apply import apply

        return apply(self, strict=strict)

    def verify(self) -> ProfileMatches:
        """Return for each function its state in the current source files: same, moved, changed, gone, or not portable.

        "Not portable": torch's hash of its closure differs in every process. A file is looked for at its path, then below the
        working directory and `sys.path`, by folder and name, or by name and content.
        """
        return ProfileMatches(tuple(matches(self.frames)))

    def to_dynamic_sources(self, *, dims: bool = False) -> str:
        """Return a value for the environment variable `TORCH_COMPILE_DYNAMIC_SOURCES`: all sources that have a dynamic size.

        The setting (`torch.compiler.config.dynamic_sources`) does not name functions: a source is dynamic in each function.

        Args:
            dims: include the dims, as in `L['x']:0`, for torch 2.13 or newer. If False, all sizes of a tensor are dynamic.
        """
        sources = {(name, source) for frame in self.frames for name, source in frame.sources.items()}
        found = {(name, dim) for name, source in sources for dim, value in source.dims() if value == DYNAMIC}
        names = {(name, dim if dims else None) for name, dim in found}
        return ",".join(_dynamic_source(name, dim) for name, dim in sorted(names, key=lambda one: (one[0], one[1] or 0)))

    def to_json(self) -> str:
        """Return the profile as the JSON document that `save` writes."""
        return _json.write(self)


def _dynamic_source(name: str, dim: int | None) -> str:
    """Return an entry of `dynamic_sources`; a name with a comma, which separates entries, becomes a regular expression."""
    text = re.escape(name).replace(",", ".") if "," in name else name
    return text if dim is None else f"{text}:{dim}"


def require_folder(path: Path) -> None:
    """Raise FileNotFoundError if the folder of `path` does not exist; it is not created, since the path may be mistyped."""
    if not path.parent.exists():
        raise FileNotFoundError(
            errno.ENOENT, "the folder for the profile does not exist: create it, or correct the path", str(path.parent)
        )


def _bytes_of(path: str | os.PathLike[str]) -> bytes:
    """Return the contents of a file; of a file that is too large for a profile, only enough bytes to detect this."""
    with Path(path).open("rb") as file:
        return file.read(_pickled.MAX_BYTES + 1)


def _selection(sizes: Sizes | None) -> Any:
    """Return a function of frame, source and dim that returns whether `sizes` selects that size."""
    if isinstance(sizes, str):
        try:
            pattern = re.compile(sizes)
        except re.error as error:
            text = f"{sizes!r} is no regular expression: {error}\n  escape the brackets of a source with re.escape"
            raise UsageError(text) from None
        return lambda frame, source, dim: pattern.fullmatch(source) is not None
    chosen = {(size.frame.key, size.source, size.dim) for size in sizes or ()}
    return lambda frame, source, dim: (frame.key, source, dim) in chosen
