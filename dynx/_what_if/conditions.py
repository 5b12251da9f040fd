"""What the guards of a trace require of a value."""

from __future__ import annotations

import re

from dynx.advice.facts.names import SIZE


def requires(guard: str, source: str) -> bool:
    """Return whether a guard requires one value of a source: a constant, an object, or a size of a tensor."""
    if match := SIZE.match(source):
        sizes = re.match(rf"check_tensor\({re.escape(match['tensor'])}, .* size=\[(.*?)\]", guard)
        dims = sizes[1].split(", ") if sizes is not None else []
        return int(match["dim"]) < len(dims) and dims[int(match["dim"])] != "None"
    condition, _, value = guard.partition(" == ")
    # torch 2.11 has the guard `x.scale == ___as_tensor(x.scale).item()` for a dynamic float
    is_itself = value.startswith(f"{source}.item()")
    return (condition == source and not is_itself) or f"_obj_id({source}, " in guard
