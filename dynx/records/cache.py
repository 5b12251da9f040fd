"""Records of torch's cache of compiled code, and of what torch would do with a call."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from dynx.records.codec import named
from dynx.records.location import Location
from dynx.records.recompile import GuardKind, Reason
from dynx.records.record import IN_PROCESS, Record
from dynx.records.shown import Shown
from dynx.records.tree import Tree


@dataclass(frozen=True, slots=True)
class GuardInfo(Record):
    """One condition under which compiled code may run."""

    kind: GuardKind
    source: str  # "x.size()[0]", as in recompile reasons; empty for global state
    expected: str | None
    location: Location | None  # the line that asked for it first
    requesters: tuple[Location, ...] = ()  # every line that asked; empty where dynx did not watch the compilation
    type: str = ""  # torch's name, "TENSOR_MATCH"
    text: str = ""  # the guard as torch words it

    @property
    def is_on_value(self) -> bool:
        """Whether it looks at a value: not at global state, nor for attributes of `torch._dynamo` that tensors rarely have."""
        return bool(self.source) and self.kind != "global_state" and "._dynamo_" not in self.source

    @property
    def is_on_library(self) -> bool:
        """Whether the program did not write the value: modules and built-in functions that it uses, two ways to one object."""
        return self.source.startswith(("G['__", "G['torch']", "torch.")) or self.kind == "alias"


@dataclass(frozen=True, slots=True)
class GuardNode(Tree, Record):
    """A guarded value, or a value through which guarded values are reached."""

    source: str  # "L['self'].weight"
    type: str  # name of the value's type
    access: str  # how it is reached from the parent node
    guards: tuple[GuardInfo, ...] = ()
    children: tuple[GuardNode, ...] = ()


@dataclass(frozen=True, slots=True)
class Entry(Shown):
    """One cache entry: a compiled version of a function or of a resume function.

    `config` is the configuration that it was compiled for, where `dynx.compile` compiled it. `seconds` is the wall time of its
    compilation; None where torch does not remember it (it keeps the last 64).
    """

    generation: int
    id: str  # compile id, "0/1"
    location: Location
    backend: str
    tree: GuardNode
    config: Mapping[str, str] = field(default_factory=dict)
    seconds: float | None = None
    hits: int | None = None  # calls that ran it; None unless `guards.count_hits` counts
    resumes: int | None = None  # for a resume function: the line of its graph break
    is_pinned: bool = False  # its guards are checked before those of other entries, whatever the backend
    handle: int = field(default=0, compare=False, repr=False, metadata=IN_PROCESS)  # identifies the entry in this process

    def __repr__(self) -> str:
        return f"<Entry: {self.id} of {self.location}, backend {self.backend}, {self.size} guards>"

    @property
    def guards(self) -> tuple[GuardInfo, ...]:
        """The guards of all values of the tree."""
        return tuple(guard for _, node in self.tree.walk() for guard in node.guards)

    @property
    def size(self) -> int:
        """The number of guards."""
        return sum(len(node.guards) for _, node in self.tree.walk())


@named("guard_cache")
@dataclass(frozen=True, slots=True)
class CacheReport(Shown):
    """The cache entries of a function and of its resume functions, oldest first."""

    location: Location
    entries: tuple[Entry, ...]

    def __repr__(self) -> str:
        return f"<CacheReport: {len(self.entries)} versions of {self.location}>"

    def tree(self) -> str:
        """Return the guards of all entries as indented text."""
        lines = []
        for entry in self.entries:
            lines.append(f"{entry.id}  {entry.backend}  {entry.location}  {entry.size} guards")
            for depth, node in entry.tree.walk(1):
                lines.append(f"{'  ' * depth}{node.source or 'everything'}  {node.type}".rstrip())
                lines += [f"{'  ' * (depth + 1)}{guard.type}: {guard.text}" for guard in node.guards]
        return "\n".join(lines)


@named("verdict")
@dataclass(frozen=True, slots=True)
class Verdict(Shown):
    """What torch would do with a call; true when it would compile.

    `reasons` names the guard of each entry that fails. `unknown` lists what is decided only while the function runs.
    """

    outcome: Literal["hit", "compile", "recompile", "eager", "unknown"]
    location: Location
    entry: str | None = None  # compile id of the entry that would run
    reasons: tuple[Reason, ...] = ()
    unknown: tuple[str, ...] = ()
    why: str | None = None  # for "eager" and "unknown"

    @property
    def hit(self) -> bool:
        """Whether a cache entry would run the call."""
        return self.outcome == "hit"

    def __repr__(self) -> str:
        facts = [" ".join(filter(None, (self.outcome, self.entry))), *filter(None, [self.why])]
        facts += [
            f"{reason.against} {reason.subject} {_or_unknown(reason.expected)}, now {_or_unknown(reason.got)}"
            for reason in self.reasons
        ]
        facts += [f"not known: {unknown}" for unknown in self.unknown]
        return f"<Verdict: {'; '.join(facts)}>"

    def __bool__(self) -> bool:
        return self.outcome in ("compile", "recompile")


def _or_unknown(value: str | None) -> str:
    return "?" if value is None else value
