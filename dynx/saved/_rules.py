"""`rule`: which saved tensors a codec packs."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import torch

from dynx._torch.shapes.symbol_facts import holds, known_size
from dynx.errors import UsageError
from dynx.records.location import Location
from dynx.records.saved import SavedKind
from dynx.saved._codec import Codec, dtype_name

_SKIPPABLE: tuple[SavedKind, ...] = ("param", "buffer", "input", "output")
_LINE = re.compile(r"(?P<file>.+):(?P<line>\d+)")


class Candidate(NamedTuple):
    """The properties of a saved tensor by which rules select it; `name` and `module` are None in eager code."""

    kind: SavedKind
    tensor: torch.Tensor  # fake while a graph is compiled
    numel: Any  # symbolic for dynamic sizes
    name: str | None = None  # of its node in the forward graph
    module: str | None = None  # "layers.0.mlp: MLP"
    location: Location | None = None
    reads_as_mask: bool = False  # an operator of backward reads only which elements are 0, or their signs
    one_bit: bool = False  # one bit per element is enough: a mask, read only as `x > 0`, or two constants


@dataclass(frozen=True, slots=True)
class Rule:
    """A codec, and the saved tensors that it packs; see `saved.rule`."""

    codec: Codec
    dtype: tuple[torch.dtype, ...] | None = None
    min_numel: int = 0
    name: str | None = None
    module: str | None = None
    line: str | None = None
    mask_only: bool | None = None
    skip: tuple[SavedKind, ...] = _SKIPPABLE

    def why_not(self, candidate: Candidate) -> str:
        """Return why the rule does not pack a tensor, or an empty string if it does."""
        return self._why_not_matched(candidate) or self._why_not_packed(candidate) or self._why_too_small(candidate)

    def _why_not_matched(self, candidate: Candidate) -> str:
        if candidate.kind in self.skip or candidate.kind == "constant":
            return f"it is {_KINDS[candidate.kind]}"
        if self.dtype is not None and candidate.tensor.dtype not in self.dtype:
            return f"dtype is {', '.join(map(dtype_name, self.dtype))}"
        patterns = ((self.name, candidate.name, "name"), (self.module, candidate.module, "module"))
        for pattern, text, option in patterns:
            if pattern is not None and (text is None or re.search(pattern, text) is None):
                return f"{option} is {pattern!r}" + ("" if text is not None else ", which only compiled graphs know")
        if self.line is not None and not is_at(candidate.location, self.line):
            return f"line is {self.line}"
        if self.mask_only is not None and self.mask_only is not candidate.one_bit:
            return "mask_only=True, and backward reads its values" if self.mask_only else "mask_only=False, and it is a mask"
        return ""

    def _why_not_packed(self, candidate: Candidate) -> str:
        codec = self.codec
        if codec.zero_mask_only and candidate.tensor.dtype is not torch.bool and not candidate.one_bit:
            return f"{codec.name} keeps only what is greater than 0, and backward reads the values"
        if reason := codec.why_not(candidate.tensor):
            return reason
        if candidate.reads_as_mask and not codec.keeps_zeros:
            return f"{codec.name} does not keep zeros and signs, and backward reads it as a mask"
        return ""

    def _why_too_small(self, candidate: Candidate) -> str:
        """Return why a tensor is below `min_numel`, or an empty string; called last: it may guard a dynamic size."""
        if self.min_numel == 0 or holds(candidate.numel >= self.min_numel):
            return ""
        return f"min_numel is {self.min_numel}; it has {known_size(candidate.numel) or 'as many as data decides'}"

    def __str__(self) -> str:
        options = ((field.name, getattr(self, field.name), field.default) for field in fields(self) if field.name != "codec")
        shown = [f"{name}={_text(value)}" for name, value, default in options if value != default]
        return f"rule({', '.join([str(self.codec), *shown])})"


_KINDS: dict[SavedKind, str] = {
    "param": "a parameter, which is in memory anyway",
    "buffer": "a buffer, which is in memory anyway",
    "input": "an input of the graph, which is in memory anyway",
    "output": "an output of the graph, which is in memory as long as the caller keeps it",
    "constant": "a constant of the graph, which is in memory anyway",
    "activation": "an activation",
}


def rule(
    codec: Codec,
    *,
    dtype: torch.dtype | Iterable[torch.dtype] | None = None,
    min_numel: int = 0,
    name: str | None = None,
    module: str | None = None,
    line: str | None = None,
    mask_only: bool | None = None,
    skip: Collection[SavedKind] = _SKIPPABLE,
) -> Rule:
    """Return a rule for `saved.hooks`: a codec, and options that select the saved tensors that it packs.

    A tensor is packed by the first rule whose options match, and whose codec takes its dtype and shape.

    Args:
        codec: How matching tensors are stored; see `saved.codecs`.
        dtype: Only tensors of this dtype, or of one of these dtypes.
        min_numel: Only tensors with at least this many elements. For dynamic sizes, the comparison becomes a guard: sizes below
            and above the limit are compiled separately.
        name: A regular expression to search in the name of the node in the forward graph, such as `"gelu"`.
        module: A regular expression to search in the path and class of the innermost module, such as `"layers.0.mlp: MLP"`.
        line: The line that computed the tensor, such as `"model.py:12"`.
        mask_only: True: only tensors for which one bit per element is enough: masks, `where(mask, 0, -inf)`, and the output of
            ReLU if backward reads only `x > 0`. False: only other tensors.
        skip: Tensors of these kinds, and their views, are not packed: `"param"`, `"buffer"`, `"input"`, `"output"`. They are in
            memory anyway, so packing them adds bytes. If the caller does not keep inputs and outputs, as in a loop over
            compiled blocks, `skip=("param", "buffer")` packs them too.

    Raises:
        UsageError: An argument has the wrong type, or is not a valid regular expression.

    Example:
        >>> from dynx import saved
        >>> print(saved.rule(saved.codecs.fp8(), min_numel=1024))
        rule(fp8(row), min_numel=1024)
    """
    if not isinstance(codec, Codec):
        raise UsageError(f"{codec!r} is not a codec\n  pass one of dynx.saved.codecs, such as saved.codecs.fp8()")
    if type(min_numel) is not int or min_numel < 0:
        raise UsageError(f"min_numel={min_numel!r} is not a number of elements\n  pass an int, such as 1024")
    for option, pattern in (("name", name), ("module", module)):
        _check_pattern(option, pattern)
    if line is not None and (not isinstance(line, str) or _LINE.fullmatch(line) is None):
        raise UsageError(f"line={line!r} is not a line of a file\n  pass file and number, such as 'model.py:12'")
    if mask_only not in (None, True, False):
        raise UsageError(f"mask_only={mask_only!r} is not valid\n  pass True, False or None")
    skipped = (skip,) if isinstance(skip, str) else tuple(skip)
    if unknown := [kind for kind in skipped if kind not in _SKIPPABLE]:
        raise UsageError(
            f"skip= contains {unknown[0]!r}, which is not a kind of tensor\n  pass some of {', '.join(map(repr, _SKIPPABLE))}"
        )
    return Rule(codec, _dtypes(dtype), min_numel, name, module, line, mask_only, skipped)  # type: ignore[arg-type]


def _dtypes(dtype: Any) -> tuple[torch.dtype, ...] | None:
    if dtype is None:
        return None
    given = (dtype,) if isinstance(dtype, torch.dtype) else tuple(dtype) if isinstance(dtype, Iterable) else (dtype,)
    if wrong := [one for one in given if not isinstance(one, torch.dtype)]:
        raise UsageError(f"dtype= contains {wrong[0]!r}, which is not a dtype\n  pass torch.float32, for example, or a list")
    return given


def _check_pattern(option: str, pattern: object) -> None:
    if pattern is None:
        return
    try:
        if not isinstance(pattern, str):
            raise TypeError(f"{option}= must be a str, not {type(pattern).__name__}")
        re.compile(pattern)
    except (re.error, TypeError) as error:
        raise UsageError(f"{option}={pattern!r} is not a regular expression: {error}") from None


def is_at(location: Location | None, line: str) -> bool:
    """Return whether `location` is the line `line` (`file:number`), or is library code that the user called from this line."""
    wanted = _LINE.fullmatch(line)
    if wanted is None or location is None:
        return False
    lines = (location, location.own)
    return any(one.line == int(wanted["line"]) and f"/{one.file}".endswith(f"/{wanted['file']}") for one in lines)


def _text(value: Any) -> str:
    if isinstance(value, tuple) and value and isinstance(value[0], torch.dtype):
        return " or ".join(map(str, value))
    return repr(value)
