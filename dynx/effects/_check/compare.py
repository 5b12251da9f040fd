"""Compare the outcomes of an eager call and a compiled call.

An `Outcome` has a `Fact` (class and value) for each object that a call returned or could change. Facts are stored by path:
the expression that leads to the object, such as `args[0].weight`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import zip_longest
from types import NoneType
from typing import Any, NamedTuple

import torch

from dynx.effects._check.facts import Fact, Tolerance, shown
from dynx.effects._check.run import Outcome, Raised
from dynx.records.check import Diff, DiffKind, Leak

# dtypes for which `torch.equal` accepts every strided tensor
_COMPARABLE = frozenset(
    (torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.int32, torch.uint8, torch.bool)
)
_OF_STATES = {int, float, str, NoneType}
_RTOL_OF_FLOATS = 1.3e-6  # default of `torch.testing.assert_close` for float32


class Difference(NamedTuple):
    """A difference between an eager and a compiled call. If numbers differ, it holds the two values as tensors."""

    diff: Diff
    eager: torch.Tensor | None = None
    compiled: torch.Tensor | None = None


def _plain(path: str, eager: str, compiled: str, kind: DiffKind, call: int) -> Difference:
    return Difference(Diff(path, eager, compiled, kind, call))


def differences(eager: Outcome, compiled: Outcome, call: int, tolerance: Tolerance) -> Iterator[Difference]:
    """Yield the differences between two calls: exception, objects (class and value), stdout, RNG states and gradients."""
    yield from _of_errors(eager.error, compiled.error, call)
    yield from _of_facts(eager, compiled, call, tolerance)
    if eager.output != compiled.output:
        one, other = eager.output, compiled.output
        yield _plain("stdout", _first_line_that_differs(one, other), _first_line_that_differs(other, one), "output", call)
    for name, state in eager.random.items():
        if not is_same_state(state, compiled.random.get(name)):
            yield _plain(f"random numbers of {name}", "", "another state", "random", call)
    yield from _of_gradients(eager.gradients, compiled.gradients, call, tolerance)


def differences_of_leaks(eager: Sequence[Leak], compiled: Sequence[Leak], call: int) -> Iterator[Difference]:
    """Yield the differences between the leaks (changed objects that were not copied) of eager and compiled calls.

    Each side ran in its own forked process: a leak that both sides changed to the same value is no difference.
    """
    one, other = ({leak.path: leak for leak in leaks} for leaks in (eager, compiled))
    for path in dict.fromkeys([*one, *other]):
        before = (one.get(path) or other[path]).before
        after, compiled_after = (leaks[path].after if path in leaks else before for leaks in (one, other))
        if after != compiled_after:
            yield _plain(path, after, compiled_after, "value", call)


def _of_errors(eager: Raised | None, compiled: Raised | None, call: int) -> Iterator[Difference]:
    if eager is None and compiled is None:
        return
    if eager and compiled and eager.classes[0] in compiled.classes and eager.message in compiled.message:
        return
    line = next((error.location for error in (eager, compiled) if error and error.location is not None), None)
    one, other = (error_text(error) or "none" for error in (eager, compiled))
    yield Difference(Diff("exception", one, other, "exception", call, line))


def error_text(error: Raised | None) -> str:
    """Return the class and message of an exception on one line; an empty text for None."""
    if error is None:
        return ""
    lines = error.message.strip().splitlines()
    text = " ".join(lines[: 2 if lines and lines[0].endswith("raised:") else 1])  # the second line: a backend's error
    return f"{error.classes[0].rpartition('.')[2]}: {text}".rstrip(": ")


def _of_facts(eager: Outcome, compiled: Outcome, call: int, tolerance: Tolerance) -> Iterator[Difference]:
    reported: list[str] = []  # paths; those below them differ for the same reason
    for path in dict.fromkeys([*eager.facts, *compiled.facts]):
        one, other = eager.facts.get(path), compiled.facts.get(path)
        if path == "result" and (eager.error is not None or compiled.error is not None):
            reported.append(path)
        if any(is_below(path, outer) for outer in reported):
            continue
        if (difference := _of_fact(one, other, tolerance)) is not None:
            reported.append(path)
            diff = Diff(path, *_texts(one, other, difference), difference[0], call)
            values = map(_numbers, (one, other)) if difference[0] in ("tensor", "value") else ()
            yield Difference(diff, *values)


def is_below(path: str, outer: str) -> bool:
    """Return whether `path` names a part of the object at the path `outer`: `args[0].weight` is below `args[0]`."""
    return path.removeprefix("attributes of ") == outer or (path.startswith(outer) and path[len(outer)] in ".[{ ")


def _of_fact(eager: Fact | None, compiled: Fact | None, tolerance: Tolerance) -> tuple[DiffKind, str] | None:
    """Compare two facts about an object. Return the kind of difference, and for tensors a text (else ""); None if equal."""
    if eager is None or compiled is None:
        return ("sharing" if "memory" in (getattr(eager, "kind", ""), getattr(compiled, "kind", "")) else "missing"), ""
    if eager.kind != compiled.kind or eager.kind in ("same", "memory"):
        is_sharing = {"same", "memory"} & {eager.kind, compiled.kind}
        return None if eager[1:3] == compiled[1:3] else ("sharing" if is_sharing else "class", "")
    if eager.cls != compiled.cls:
        return "class", ""
    if eager.kind == "tensor":
        reason = _tensors_differ(eager.value, compiled.value, tolerance)
        return None if reason is None else ("tensor", reason)
    return None if _equal(eager.value, compiled.value, tolerance) else ("items" if eager.kind == "items" else "value", "")


def _numbers(fact: Fact | None) -> torch.Tensor | None:
    """Return the tensor, float or complex number in a `Fact` as a new tensor; None if the `Fact` contains another value."""
    if fact is not None and fact.kind == "tensor":
        return fact.value.clone()
    return torch.tensor(fact.value) if fact is not None and isinstance(fact.value, (float, complex)) else None


def _texts(eager: Fact | None, compiled: Fact | None, difference: tuple[DiffKind, str]) -> tuple[str, str]:
    one, other = ("absent" if fact is None else fact.text for fact in (eager, compiled))
    if one == other and eager is not None and compiled is not None:
        one, other = f"{eager.cls} {one}", f"{compiled.cls} {other}"
    return one, difference[1] or other


def _equal(eager: Any, compiled: Any, tolerance: Tolerance) -> bool:
    if isinstance(eager, (float, complex)) and isinstance(compiled, (float, complex)):
        is_default = tolerance == Tolerance()
        limits = Tolerance(_RTOL_OF_FLOATS, 0.0) if is_default else tolerance  # floats often are elements of tensors
        one, other = (torch.tensor(value, dtype=torch.complex128) for value in (eager, compiled))
        return _tensors_differ(one, other, limits) is None
    return type(eager) is type(compiled) and eager == compiled


def _tensors_differ(eager: torch.Tensor, compiled: torch.Tensor, tolerance: Tolerance) -> str | None:
    """Return how the compiled tensor differs, as text; None if it is close enough."""
    if eager.device != compiled.device:
        return f"{shown(compiled)} on {compiled.device}"
    if eager.device.type == "meta":
        return None if eager.shape == compiled.shape else shown(compiled)
    if _is_equal(eager, compiled):
        return None
    rtol, atol = tolerance
    if (rtol is None) != (atol is None):
        rtol, atol = rtol or 0.0, atol or 0.0
    try:
        torch.testing.assert_close(compiled, eager, rtol=rtol, atol=atol, equal_nan=True)
    except AssertionError as error:
        lines = [line for line in str(error).splitlines() if line and not line.startswith("Tensor-likes are not")]
        return "; ".join(lines)
    return None


def _is_equal(eager: torch.Tensor, compiled: torch.Tensor) -> bool:
    """Return whether tensors are surely equal, without slow `assert_close`; False for subclasses, sparse and rare dtypes."""
    is_plain = all(type(tensor) is torch.Tensor and tensor.layout is torch.strided for tensor in (eager, compiled))
    return is_plain and eager.dtype is compiled.dtype and eager.dtype in _COMPARABLE and torch.equal(eager, compiled)


def _of_gradients(eager: Any, compiled: Any, call: int, tolerance: Tolerance) -> Iterator[Difference]:
    if isinstance(eager, str):
        return  # the gradients of eager code cannot be computed
    if isinstance(compiled, str):
        yield _plain("gradients", f"of {len(eager)} tensors", compiled.splitlines()[0], "gradient", call)
        return
    for path in dict.fromkeys([*eager, *compiled]):
        one, other = eager.get(path), compiled.get(path)
        if one is None or other is None:
            texts = ["none" if value is None else shown(value) for value in (one, other)]
            yield _plain(f"gradient of {path}", texts[0], texts[1], "gradient", call)
        elif (reason := _tensors_differ(one, other, tolerance)) is not None:
            yield Difference(Diff(f"gradient of {path}", shown(one), reason, "gradient", call), one, other)


def is_same_state(eager: Any, compiled: Any) -> bool:
    """Return whether two states of random number generators are equal."""
    if isinstance(eager, dict):
        return eager.keys() == compiled.keys() and all(is_same_state(eager[name], compiled[name]) for name in eager)
    if isinstance(eager, torch.Tensor):
        return torch.equal(eager, compiled)
    if isinstance(eager, (list, tuple)) and _OF_STATES.issuperset(map(type, eager)):
        return bool(eager == compiled)
    if isinstance(eager, (list, tuple)):
        return len(eager) == len(compiled) and all(map(is_same_state, eager, compiled))
    return bool((eager == compiled).all()) if hasattr(eager, "all") else eager == compiled


def _first_line_that_differs(text: str, other: str) -> str:
    pairs = zip_longest(text.splitlines(), other.splitlines())
    otherwise = "nothing more" if text else "nothing"
    return next((line for line, other_line in pairs if line is not None and line != other_line), otherwise)
