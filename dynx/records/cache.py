"""Records of torch's cache of compiled code (entries and guards), and of whether a call would recompile."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from dynx.records.codec import named
from dynx.records.location import Location
from dynx.records.recompile import GuardKind, Reason
from dynx.records.record import IN_PROCESS, Record, Tree
from dynx.records.shown import Shown


@dataclass(frozen=True, slots=True)
class GuardInfo(Record):
    """A guard: one condition under which compiled code may run."""

    kind: GuardKind
    source: str  # "x.size()[0]", as in recompile reasons; empty for global state
    expected: str | None
    location: Location | None  # the line that requested the guard first
    requesters: tuple[Location, ...] = ()  # every line that requested it; empty if dynx did not observe the compilation
    type: str = ""  # torch's name, "TENSOR_MATCH"
    text: str = ""  # the guard as torch words it

    @property
    def is_on_value(self) -> bool:
        """Whether the guard checks a value, not global state or an internal attribute such as `_dynamo_dynamic_indices`."""
        return bool(self.source) and self.kind != "global_state" and "._dynamo_" not in self.source

    @property
    def is_on_library(self) -> bool:
        """Whether the guard checks an imported module or built-in function. Guards that two values are identical also count."""
        return self.source.startswith(("G['__", "G['torch']", "torch.")) or self.kind == "alias"


@dataclass(frozen=True, slots=True)
class GuardNode(Tree, Record):
    """A node of torch's guard tree: a guarded value, or a value through which guarded values are reached."""

    source: str  # "L['self'].weight"
    type: str  # name of the value's type
    access: str  # how it is reached from the parent node
    guards: tuple[GuardInfo, ...] = ()
    children: tuple[GuardNode, ...] = ()


@dataclass(frozen=True, slots=True)
class Entry(Shown):
    """One cache entry: a compiled version of a function, or of a resume function (the code after a graph break).

    `config` is the configuration for which `dynx.compile` compiled the entry; empty for other entries. `seconds` is the wall
    time of the compilation; None if torch no longer has it (torch keeps the last 64).
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
        """All guards of the entry."""
        return tuple(guard for _, node in self.tree.walk() for guard in node.guards)

    @property
    def size(self) -> int:
        """The number of guards of the entry."""
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
        """Return the guard trees of all entries as indented text, with a line for each value and each guard."""
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
    """What torch would do with a call, predicted without running it. Its truth value is True if torch would compile.

    `reasons` has the failing guard of each cache entry. `unknown` describes further code that the call may run; only when
    this code runs is it known whether torch compiles it.
    """

    outcome: Literal["hit", "compile", "recompile", "eager", "unknown"]
    location: Location
    entry: str | None = None  # compile id of the entry that would run
    reasons: tuple[Reason, ...] = ()
    unknown: tuple[str, ...] = ()
    why: str | None = None  # for "eager" and "unknown"

    @property
    def hit(self) -> bool:
        """Whether the call would run an existing cache entry."""
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
