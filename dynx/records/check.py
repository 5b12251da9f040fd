"""Records of `dynx.check`: differences between a compiled function and eager code."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from dynx.records.graph_break import GraphBreak
from dynx.records.location import Location
from dynx.records.record import Record
from dynx.records.shown import Shown

# settings of torch that a check changes for the compiled side
DONATED_BUFFER = "torch._functorch.config.donated_buffer"
AUTOGRAD_CACHE = "torch._functorch.config.enable_autograd_cache"
FALLBACK_RANDOM = "torch._inductor.config.fallback_random"
Outcome = Literal["same", "different", "not isolated", "vacuous"]
DiffKind = Literal[
    "value",
    "tensor",  # its elements, sizes, dtype or device
    "class",
    "items",  # of a container, or the names of attributes
    "missing",  # on one side
    "sharing",  # the same object, or memory of tensors
    "exception",
    "output",  # on stdout
    "random",  # the state of a random number generator
    "gradient",
]


@dataclass(frozen=True, slots=True)
class Diff(Record):
    """One difference between eager and compiled code after a call, for example in a result, an attribute or a gradient."""

    path: str  # "result[0]", "args[0].weight", "self.count", "closure.total", "globals.seen", "Model.calls"
    eager: str
    compiled: str
    kind: DiffKind
    call: int = 0  # the first call at which it differs, from 0
    location: Location | None = None  # of the last mutation of the object that Dynamo traced, or of the exception


@dataclass(frozen=True, slots=True)
class Leak(Record):
    """An object of the program that the checked calls changed, because `check` did not replace it by a copy."""

    path: str  # "settings.limits", "seen in main"
    before: str
    after: str

    def __str__(self) -> str:
        return f"{self.path}: {self.before}, then {self.after}"


@dataclass(frozen=True, slots=True)
class CheckReport(Shown):
    """The result of `dynx.check`: whether compiled code does the same as eager code, and the differences."""

    name: str  # of the function
    diffs: tuple[Diff, ...]
    calls: int  # number of calls on each side
    compiles: int  # number of compiled graphs
    graph_breaks: tuple[GraphBreak, ...] = ()
    backend: str = "eager"
    location: Location | None = None  # of the function
    shared: Mapping[str, int] = field(default_factory=dict)  # by class, how many objects both sides used: no copies
    stage: str = ""  # where a difference begins: "Dynamo", "AOTAutograd", "decompositions and partition", or the backend
    node: str = ""  # the first node whose values differ, with `bisect=True`
    node_location: Location | None = None
    raised: str = ""  # the first exception that both sides raised
    leaks: tuple[Leak, ...] = ()  # objects of the program itself that the calls changed
    unread: tuple[str, ...] = ()  # classes of objects in `shared` whose state cannot be compared
    settings: Mapping[str, bool] = field(default_factory=dict)  # of torch, changed for the compiled side
    draws: bool = False  # whether the function drew random numbers
    changed_at: int | None = None  # the first call after `change`
    is_whole: bool = True  # whether all objects of the program were watched for changes

    @property
    def outcome(self) -> Outcome:
        """The result of the comparison: "same", "different", "not isolated" or "vacuous".

        "not isolated" if eager and compiled code may have changed the same objects: then the comparison proves nothing.
        "vacuous" if nothing was compiled and nothing differs.
        """
        if self.leaks:
            return "not isolated"
        if self.is_vacuous:
            return "vacuous"
        if self.unread:
            return "not isolated"
        return "different" if self.diffs else "same"

    @property
    def is_vacuous(self) -> bool:
        """Whether nothing was compiled and nothing differs: eager code was compared with eager code."""
        return self.compiles == 0 and not self.diffs

    @property
    def ok(self) -> bool:
        """Whether the outcome is "same", that is, neither "different" nor "not isolated" nor "vacuous" (see `outcome`)."""
        return self.outcome == "same"

    def assert_ok(self) -> None:
        """Raise `NotIsolated` if the outcome is "not isolated", `CompiledDiffers` if it is "different" or "vacuous"."""
        if not self.ok:
            from dynx.errors import CompiledDiffers, NotIsolated

            raise NotIsolated(self.text) if self.outcome == "not isolated" else CompiledDiffers(self.text)

    @property
    def text(self) -> str:
        """The whole report as plain text: the outcome in the first line, then one leak or difference per line, then notes."""
        return "\n".join([self._headline(), *self._details()])

    def _headline(self) -> str:
        if self.outcome == "same":
            return f"{self.name}: compiled with {self.backend}, {self.calls} calls do the same as eager code"
        if self.outcome == "vacuous":
            return f"{self.name}: VACUOUS, nothing was compiled: the calls ran eagerly on both sides"
        if self.outcome == "not isolated":
            return f"{self.name}: NOT ISOLATED, eager and compiled code used the same objects: nothing is proven"
        where = f"; it begins in {self.stage}" + (f" at {self.node}" if self.node else "") if self.stage else ""
        return f"{self.name}: compiled with {self.backend}, it does something else than eager code{where}"

    def _details(self) -> Iterator[str]:
        if self.outcome == "vacuous":
            if self.raised:
                yield f"  both sides raised {self.raised}\n  pass arguments with which the function returns"
            else:
                yield "  pass arguments with tensors, or look for graph breaks with dynx.watch()"
        for leak in self.leaks:
            yield f"  changed in the program itself: {leak}"
        if self.unread:
            yield f"  used by both sides, cannot be compared: {', '.join(self.unread)}"
        for diff in self.diffs:
            at = f", {diff.location}" if diff.location is not None else ""
            yield f"  {diff.path}: eager {diff.eager}, compiled {diff.compiled} ({self.call_of(diff)}{at})"
        yield from (f"  {note}" for note in self.notes)

    def call_of(self, diff: Diff) -> str:
        """Return the first call that differs: `call 2`, or `call 2, after the change` if it ran after check's `change`."""
        is_after = self.changed_at is not None and diff.call >= self.changed_at
        return f"call {diff.call}, after the change" if is_after else f"call {diff.call}"

    @property
    def notes(self) -> tuple[str, ...]:
        """Limits of the comparison, one text each: for example, that compiled code was made to draw the same random numbers."""
        notes = []
        if self.draws and self.settings.get(FALLBACK_RANDOM):
            notes.append(f'random numbers were aligned ({FALLBACK_RANDOM} = True); rng="as is" compares the compiled ones')
        if not self.is_whole:
            notes.append("the program has too many objects: not all of them were watched for changes")
        if self.leaks:
            notes.append(
                'pass isolate="fork" (not with CUDA), or the module, class or object that holds them: state={"name": holder}'
            )
        return tuple(notes)
