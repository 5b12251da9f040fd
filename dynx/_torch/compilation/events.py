"""Read torch's compile events: lookups in its graph caches, automatic dynamic shapes, and backward graphs."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Literal, cast

_LOOKUP = re.compile(r"(?P<cache>fx_graph|autograd)_cache_(?P<result>hit|miss|bypass)")
# texts of symbolic values: once a size is symbolic, every number differs from it, so only the first change is reported
_SYMBOLIC = ("AutoDynamic", "auto_dynamic", "AutoUnset", "auto_unset", "InferStride", "?")


@dataclass(frozen=True, slots=True)
class RawCache:
    """One lookup in torch's FX graph cache or AOTAutograd cache, and its result."""

    cache: Literal["fx_graph", "aot_autograd"]
    result: Literal["hit", "miss", "bypass"]
    reason: str | None


@dataclass(frozen=True, slots=True)
class RawDynamic:
    """One size, stride, rank or number that torch found to change between calls, with the two values that differed."""

    source: str
    dim: str
    first: str
    second: str


def read_event(args: tuple[Any, ...], kwargs: dict[str, Any]) -> RawCache | RawDynamic | None:
    """Convert the arguments of `CompileEventLogger.instant` to a `RawCache` or a `RawDynamic`; None for other events."""
    name = args[0] if args else kwargs.get("event_name", "")
    metadata = args[1] if len(args) > 1 else kwargs.get("metadata", {})
    if name == "automatic_dynamic":
        return _dynamic(metadata)
    lookup = _LOOKUP.fullmatch(name)
    if lookup is None:
        return None
    reason = metadata.get("cache_bypass_reason") if lookup["result"] == "bypass" else None
    cache = "fx_graph" if lookup["cache"] == "fx_graph" else "aot_autograd"
    return RawCache(cast("Any", cache), cast("Any", lookup["result"]), str(reason) if reason else None)


def backward_of(args: tuple[Any, ...]) -> str | None:
    """Return the compile id of a backward graph that is compiled at the first `backward()`; None for other compilations.

    `args` are those of torch's `CompilationCallbackHandler.run_start_callbacks` or `.run_end_callbacks`.
    """
    arguments = args[1]
    return str(arguments.compile_id) if arguments.callback_trigger.name == "LAZY_BACKWARD" else None


def _dynamic(metadata: dict[str, Any]) -> RawDynamic | None:
    changed, first, second = metadata["dim_changed"], str(metadata["cached"]), str(metadata["new"])
    if any(word in first or word in second for word in _SYMBOLIC):
        return None
    reason = str(metadata["reason"])
    if reason == "scalar change":
        dim = "scalar"
    elif reason.startswith("dimensionality"):
        dim = "rank"
    else:
        dim = f"{'stride' if 'stride' in reason else 'size'} {changed}"
    return RawDynamic(str(metadata["name"]), dim, first, second)
