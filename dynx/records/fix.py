"""Records of fixes: edits to the code or settings of a program that may remove a recompile, graph break or other finding."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from dynx.records.location import Location
from dynx.records.record import Record

FixKind = Literal[
    "statement",  # runs before the program: `torch._dynamo.config.capture_scalar_outputs = True`
    "option",  # an argument of torch.compile: `dynamic=True`
    "mark",  # `mark_dynamic(x, 1)` before the call of a compiled function
    "rewrite",  # a change of the line of the finding, or of the call: see `Rewrite`
]
Rewrite = Literal[
    "where",
    "assert",
    "eager only",
    "index",
    "condition",
    "tensor argument",
    "tensor attribute",
]

# texts for the user; `dynx.fix` selects by the name of the rewrite, not by its text
TEXTS: Mapping[Rewrite, str] = {
    "where": "torch.where instead of if",
    "assert": "torch._assert_async instead of if: raises RuntimeError",
    "eager only": "only in eager code: compiled code no longer logs",
    "index": "index with a tensor of one element",
    "condition": "True if … else False instead of a condition",
    "tensor argument": "pass a tensor",
    "tensor attribute": "a tensor as {attribute}",
}
_LONGEST_CODE = 120
_WITH_CODE: Mapping[Rewrite, str] = {
    "where": "write {code}",
    "condition": "write {code}",
    "assert": "write {code}, which raises RuntimeError",
}


@dataclass(frozen=True, slots=True)
class Mark(Record):
    """One dimension of a tensor argument that a fix marks as dynamic, by `mark_dynamic`."""

    source: str  # of the tensor, in Dynamo's words: "L['x']"
    dim: int


@dataclass(frozen=True, slots=True)
class Fix(Record):
    """An edit to the code or settings of a program that may remove a finding, and that `dynx fix` can apply and try."""

    kind: FixKind
    code: str  # text for the user; for a statement and an option the code itself
    location: Location | None = None  # for a mark the compiled function, for a rewrite the line
    called_from: Location | None = None  # the line of the call, if the fix changes that line
    marks: tuple[Mark, ...] = ()
    may_fail: bool = True  # for a mark: True for mark_dynamic, which may raise, False for maybe_mark_dynamic
    rewrite: Rewrite | None = None
    attribute: str = ""  # the attribute that a "tensor attribute" rewrite assigns: "self.scale"
    after: Fix | None = None  # the fix that led to this fix; both are tried together

    @property
    def name(self) -> str:
        """The setting, option, call or rewrite of this fix, without its value and place; equal for fixes that do the same."""
        if self.kind == "mark":
            return "mark_dynamic" if self.may_fail else "maybe_mark_dynamic"
        return self.rewrite or (self.code if self.kind == "option" else self.code.partition(" = ")[0])

    def is_weaker_than(self, other: Fix) -> bool:
        """Return whether this is a mark that torch may ignore, of the sizes that `other` marks and torch then requires."""
        both = (self.kind, other.kind) == ("mark", "mark")
        return both and self.marks == other.marks and other.may_fail and not self.may_fail

    def written_as(self, code: str) -> str:
        """Return the text for the user with `code`, the new code of the line, if there is room for it."""
        if self.rewrite is None or self.rewrite not in _WITH_CODE or not 0 < len(code) <= _LONGEST_CODE:
            return self.code
        return _WITH_CODE[self.rewrite].format(code=code)


def rewrite(
    how: Rewrite,
    location: Location | None = None,
    called_from: Location | None = None,
    marks: tuple[Mark, ...] = (),
    *,
    attribute: str = "",
) -> Fix:
    """Return a fix that rewrites a line of the program; the arguments are fields of `Fix`."""
    text = TEXTS[how].format(attribute=attribute)
    return Fix("rewrite", text, location, called_from, marks, rewrite=how, attribute=attribute)
