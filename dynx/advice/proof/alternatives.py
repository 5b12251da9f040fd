"""The alternatives in a text of advice, such as "mark_dynamic(x, 0) before the call, or pad to one size"."""

from __future__ import annotations

import re
from collections.abc import Collection

from dynx.records.fix import Fix

_BETWEEN = r"(; or |, or |; )"


def without(advice: str, fixes: Collection[Fix]) -> str:
    """Return advice without the alternatives that say to apply one of the fixes; empty if none is left."""
    parts = re.split(_BETWEEN, advice)
    kept = [index for index in range(0, len(parts), 2) if not any(names(parts[index], fix) for fix in fixes)]
    return "".join(parts[index] if number == 0 else parts[index - 1] + parts[index] for number, index in enumerate(kept))


def naming(advice: str, fix: Fix) -> str | None:
    """Return the alternative that says to apply a fix; None if there is none."""
    return next((part for part in re.split(_BETWEEN, advice)[::2] if names(part, fix)), None)


def names(advice: str, fix: Fix) -> bool:
    """Return whether a text of advice contains the setting, option or call of a fix, such as `mark_dynamic`."""
    if setting := re.search(r"config\.(\w+)", fix.code):
        return setting[1] in advice
    if fix.rewrite == "tensor argument":
        return bool(re.search(r"\bpass \S+ as a tensor\b", advice))
    call = fix.code.partition("(")[0]
    return bool(re.search(rf"\b{call}\(", advice)) if fix.kind == "mark" else fix.code in advice
