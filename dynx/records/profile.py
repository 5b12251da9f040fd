"""Records of a PGO profile: for each function, which sizes, strides and numbers were static or dynamic.

dynx saves a profile with the values that it saw in each run, so that a later process compiles with dynamic sizes at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from dynx.records.location import Location
from dynx.records.record import IN_PROCESS, Record
from dynx.records.shown import Shown

DYNAMIC = "dynamic"
_PORTABLE = 0x6479  # the first 16 of 64 bits of a closure hash by dynx

_LEAST = 2  # lower bound of a symbolic size without comparisons

NOT_FINITE = ("nan", "inf", "-inf")  # floats that JSON does not have

# a size, stride or number: a value, DYNAMIC, or None if it is not known; a stride may also be "size(1)*stride(1)"
Atom = int | float | str | None
Atoms = Atom | tuple[Atom, ...]  # one for each dim; a single one if the number of dims is unknown, or differs


class Seen(NamedTuple):
    """A value that a size or number had in one compilation."""

    dim: int | None  # None for a number that is no size
    value: int | float | str
    run: str  # a key of `Profile.runs`
    compile_id: str  # "0/1"

    def order(self) -> tuple[object, ...]:
        """Return a sort key that orders values by dim, and in each dim numbers before strings, the numbers ascending."""
        is_text = isinstance(self.value, str)
        return self.dim is not None, self.dim or 0, is_text, 0 if is_text else self.value, *map(str, self[1:])


class SourceProfile(NamedTuple):
    """What a profile knows of one source, such as `L['x']`: the value of a number, or the sizes and strides of a tensor."""

    scalar: Atom = None
    size: Atoms = None
    stride: Atoms = None
    seen: tuple[Seen, ...] = ()  # sorted; at most 8 for each dim, the smallest and largest values

    def dims(self) -> Iterator[tuple[int | None, Atom]]:
        """Yield (dim, size) for each dim of a tensor; for a number, (None, value). A dynamic one is the string "dynamic"."""
        if isinstance(self.size, tuple):
            yield from enumerate(self.size)
        elif self.scalar is not None:
            yield None, self.scalar if self.size == DYNAMIC else self.size

    def values(self, dim: int | None) -> tuple[Seen, ...]:
        """Return the values that were seen for one dim of a tensor; for an int or float, `dim` is None."""
        return tuple(seen for seen in self.seen if seen.dim == dim)


class GraphSize(NamedTuple):
    """A size or number for which a graph was compiled: one value, or the range of values of a symbol.

    A line of code may have specialized the symbol, as a loop over the size does; then `low` and `high` are equal.
    """

    source: str
    dim: int | None  # None for a number that is no size
    marked: bool  # torch treated it as dynamic; if not, `low` and `high` are its value
    low: int | float | str | None  # None for no bound
    high: int | float | str | None

    @property
    def is_fixed(self) -> bool:
        """Whether torch treated the size as dynamic, and a line of code then specialized it to one value."""
        return self.marked and self.low is not None and self.low == self.high

    def admits(self, value: int | float | str) -> bool:
        """Return whether the graph was compiled for calls in which the size or number has this value."""
        if isinstance(value, str) or isinstance(self.low, str) or isinstance(self.high, str):
            return value == self.low
        return (self.low is None or value >= self.low) and (self.high is None or value <= self.high)

    def is_limit(self, value: int | float | str) -> bool:
        """Return whether `value` is the bound of a comparison in the code: a trace with this value may take another branch."""
        return self.marked and not self.is_fixed and (value == self.high or (value == self.low and value != _LEAST))


FrameKey = tuple[str, int, str, int | None]  # `FrameProfile.key`
Graph = tuple[GraphSize, ...]  # of one compilation, sorted by source and dim; without sizes that the program itself marked


@dataclass(frozen=True, slots=True)
class FrameProfile(Record):
    """The profile of one function, or of one resume function after a graph break."""

    file: str
    file_hash: str  # CRC-32 of the file in hexadecimal, as torch computes it
    name: str  # "forward", "torch_dynamo_resume_in_forward_at_12"
    line: int  # the first line of the function, or the line after which it resumes
    closure: int | None = None  # hash of the functions that it closes over
    qualname: str | None = None  # "Block.forward"; None if the source was not found
    source_hash: str | None = None  # of the text of the function
    offset: int = 0  # lines from the first line of the function to `line`, in a resume function
    sources: Mapping[str, SourceProfile] = field(default_factory=dict)
    graphs: tuple[Graph, ...] = ()  # compiled for this function, including the functions that it inlines

    @property
    def key(self) -> FrameKey:
        """The key by which torch identifies the function, without the path: file hash, line, name, closure hash."""
        return self.file_hash, self.line, self.name, self.closure

    @property
    def is_portable(self) -> bool:
        """Whether `key` is the same in every process: no closure, or a closure hash by dynx (torch's hash varies)."""
        return self.closure is None or self.closure >> 48 == _PORTABLE


def portable_closure(digest: bytes) -> int:
    """Return a 64-bit closure hash: 16 bits that mark it as dynx's, then the first 48 bits of `digest`."""
    return _PORTABLE << 48 | int.from_bytes(digest[:6], "big")


@dataclass(frozen=True, slots=True)
class ProfileData(Shown):
    """A PGO profile: the dynamic sizes of each function (`frames`), and the runs and torch versions that it is from."""

    frames: tuple[FrameProfile, ...] = ()
    runs: Mapping[str, str] = field(default_factory=dict)  # by id: "2026-11-23T09:10:11 train.py"
    torch: tuple[str, ...] = ()
    path: str | None = field(default=None, compare=False, repr=False, metadata=IN_PROCESS)  # the file that it was read from


class ProfileChange(NamedTuple):
    """One dim or number in which two profiles differ; `before` or `after` is None if that profile does not have it."""

    frame: FrameProfile
    source: str
    dim: int | None
    before: Atom
    after: Atom


@dataclass(frozen=True, slots=True)
class DynamicSize(Record):
    """Why a size or number of one function is dynamic: the different values that it had."""

    location: Location  # the function; while it is recorded, the line that used the value first
    source: str  # "L['x']"
    dim: int | None  # None for a number that is no size
    seen: tuple[Seen, ...]  # empty in a profile without values
    fixed_by: Location | None = None  # the line that made it static again, in each compilation in which it was dynamic


@dataclass(frozen=True, slots=True)
class PrunableSize(Record):
    """A size or number that a profile need not make dynamic: in each compilation, a line of code made it static again."""

    frame: FrameProfile
    source: str
    dim: int | None
    location: Location | None  # the line that fixed it


@dataclass(frozen=True, slots=True)
class FrameMatch(Record):
    """Whether a function of a profile is in the current source files, and where."""

    frame: FrameProfile
    state: Literal["same", "moved", "changed", "gone", "not portable"]
    file: str | None = None  # the present file
    line: int | None = None  # the present line
    why: str = ""


@dataclass(frozen=True, slots=True)
class ProfileDiff(Shown):
    """The result of `Profile.diff`: the sizes in which two profiles differ. Its truth value is False if there are none."""

    changes: tuple[ProfileChange, ...] = ()

    def __iter__(self) -> Iterator[ProfileChange]:
        return iter(self.changes)

    def __len__(self) -> int:
        return len(self.changes)


@dataclass(frozen=True, slots=True)
class ProfileMatches(Shown):
    """The result of `Profile.verify`: for each function of a profile, whether the current source files contain it."""

    matches: tuple[FrameMatch, ...] = ()

    def __iter__(self) -> Iterator[FrameMatch]:
        return iter(self.matches)

    def __len__(self) -> int:
        return len(self.matches)


@dataclass(frozen=True, slots=True)
class DynamicSizes(Shown):
    """The result of `Profile.explain` and `Recorder.explain`: why sizes are dynamic.

    `runs` has the date and program of each run in which the sizes had these values, by the id of the run.
    """

    sizes: tuple[DynamicSize, ...] = ()
    runs: Mapping[str, str] = field(default_factory=dict)

    def __iter__(self) -> Iterator[DynamicSize]:
        return iter(self.sizes)

    def __len__(self) -> int:
        return len(self.sizes)
