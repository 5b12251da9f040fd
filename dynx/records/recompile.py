"""Records of a recompile and of the guards that failed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from dynx.records.location import Location
from dynx.records.record import OfCompile, Record

GuardKind = Literal[
    "size",
    "stride",
    "rank",
    "dtype",
    "device",
    "requires_grad",
    "tensor",  # properties of a tensor
    "value",
    "length",
    "keys",
    "none",
    "type",  # properties of a Python value
    "object",
    "function",
    "alias",
    "attribute",  # identity and presence
    "global_state",
    "backend",
    "config",
    "shape",
    "custom",  # a guard of the user's own, by name
    "held",  # no guard failed in this process, one of several ranks
    "other",
]

# kinds whose source is the guarded value itself
_OF_A_VALUE = ("rank", "dtype", "device", "requires_grad", "type", "length", "keys")


@dataclass(frozen=True, slots=True)
class Reason(Record):
    """One failed guard of a cache entry, with the expected and the actual value as text.

    It holds texts and no objects of the program, so that it can outlive the frame.
    """

    kind: GuardKind
    source: str  # "L['x'].size()[0]"
    expected: str | None
    got: str | None  # None where the value could not be read without running the user's code
    location: Location | None  # the line that requested the guard; for global state, the line of the call
    rule: str | None = None  # "DX102" where an advice rule applies
    against: str | None = None  # the compile id whose guard failed
    # the kind of object that holds the value: "argument", "global", "module", "optimizer", "object"; "captured" for a value
    # of a captured backward pass, which has no name in the program, "code of torch" for one of a function that the pass calls
    holder: str | None = None
    requesters: tuple[Location, ...] = ()  # every line that requested the guard, in order
    text: str = ""  # the guard as torch words it
    code: str = ""  # the source line at `location.own`
    other_instance: str | None = None  # class of `self`, if the cache entry was compiled for another instance of it
    instances: int = 0  # living instances of the class of `self` for which the function is compiled, with this one
    differing: tuple[str, ...] = ()  # guarded attributes of `self` that differ between the two instances: "self.layer_idx"
    by_backend: bool = False  # AOTAutograd or inductor added the guard, not Dynamo

    @property
    def subject(self) -> str:
        """What the guard compares, as text: `x.size()[0]`, `dtype of x`."""
        return f"{self.kind} of {self.source}" if self.kind in _OF_A_VALUE else self.source


@dataclass(frozen=True, slots=True)
class Recompile(OfCompile, Record):
    """A compilation of a function that already has cache entries, with the reasons why none of them matched the call.

    `reasons` begin with the guards whose actual value is new: the function had not been compiled for this value before.
    """

    generation: int
    id: str
    location: Location
    reasons: tuple[Reason, ...]
    seconds: float = 0.0
    outcome: str = "compiled"  # as in Compile; "refused" if the stance fail_on_recompile raised instead
    further: tuple[Reason, ...] = ()  # other failed guards of the cache entry of the first reason, which torch does not report
