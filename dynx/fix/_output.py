"""Compare the outputs of two runs of a program: texts exactly, numbers within a tolerance."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

_NUMBER = re.compile(r"(?<![\w.])([-+]?(?:\d+\.\d*|\.?\d+)(?:[eE][-+]?\d+)?|[-+]?inf|nan)(?![\w.]*\w)")


@dataclass(frozen=True, slots=True)
class Tolerance:
    """How far printed numbers with a decimal point or exponent may differ; integers have to be equal."""

    relative: float = 1e-4
    absolute: float = 1e-6

    def allows(self, first: str, second: str) -> bool:
        """Return whether two printed numbers are equal within the tolerance."""
        if first == second:
            return True
        if re.fullmatch(r"[-+]?\d+", first) and re.fullmatch(r"[-+]?\d+", second):
            return int(first) == int(second)
        a, b = float(first), float(second)
        if math.isnan(a) and math.isnan(b):
            return True
        return math.isclose(a, b, rel_tol=self.relative, abs_tol=self.absolute)


def difference(
    first: str, second: str, tolerance: Tolerance, varying: frozenset[int] = frozenset(), *, may_go_on: bool = False
) -> str | None:
    """Return the first difference between the outputs without and with a fix, as a text for the user; None if there is none.

    `varying` are the positions of numbers that are not compared, from `varying_numbers`. `may_go_on` is whether the second
    output may be longer, because the program failed without the fix.
    """
    texts, others = (_NUMBER.split(_normalized(output)) for output in (first, second))
    line = 1
    for position, (text, other) in enumerate(zip(texts, others, strict=False)):
        is_number = position % 2 == 1
        if is_number:
            same = position in varying or tolerance.allows(text, other)
        else:
            is_last = may_go_on and position == len(texts) - 1
            same = other.startswith(text) if is_last else text == other
        if not same:
            shared = 0 if is_number else _shared(text, other)
            number = line + text[:shared].count("\n")
            return f"line {number}: {_line_of(texts, position, shared)}, then {_line_of(others, position, shared)}"
        line += text.count("\n")
    if len(texts) != len(others) and not (may_go_on and len(others) > len(texts)):
        return f"line {line}: {'more' if len(others) > len(texts) else 'less'} output"
    return None


def varying_numbers(first: str, second: str, tolerance: Tolerance) -> frozenset[int] | None:
    """Return the positions of numbers that differ between two runs of the same program; None if other text differs too."""
    texts, others = (_NUMBER.split(_normalized(output)) for output in (first, second))
    if texts[::2] != others[::2]:
        return None
    return frozenset(
        position for position in range(1, len(texts), 2) if not tolerance.allows(texts[position], others[position])
    )


def _normalized(output: str) -> str:
    """Return the output with one space for each group of spaces and tabs, because the width of numbers changes the padding."""
    return re.sub(r"[ \t]+", " ", output)


def _shared(first: str, second: str) -> int:
    """Return the length of the common beginning of two texts."""
    pairs = zip(first, second, strict=False)
    return next((at for at, (one, other) in enumerate(pairs) if one != other), min(len(first), len(second)))


def _line_of(parts: list[str], position: int, offset: int) -> str:
    """Join `parts`, and return the line that contains the character `parts[position][offset]`, cut to 60 characters."""
    text, at = "".join(parts), sum(map(len, parts[:position])) + offset
    line = (text[:at].rpartition("\n")[2] + text[at:].partition("\n")[0]).strip()
    return repr(line if len(line) <= 60 else f"{line[:57]}…")
