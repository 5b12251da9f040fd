"""The options of the backend."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal, get_args, get_type_hints

from dynx.errors import UsageError

OR_ERROR = "DYNX_CUDAGRAPH_OR_ERROR"


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """What `backend="dynx_cudagraphs"` does; given as `options` of torch.compile, or to `cudagraphs.backend`.

    `inner` compiles what is captured. `inputs` are copied before a replay ("copy"), by the graph itself, which is told from
    where ("memcpy_node"), or not at all: the graph is told to read them where they lie ("patch"; tried when it is recorded,
    and where that cannot be proven they are copied). These two need cuda-bindings; "auto" has up to four inputs copied by the
    graph where it can. `params` that move need another recording ("rerecord"), or the graph is told where they are ("patch",
    for graphs without gradients; it tells the inputs too). `outputs` are "clone" (yours to keep), "alias" (valid until the
    next call) or "static" (the recording's own tensors). `gradients` of parameters go through "autograd", or the graph writes
    them to `.grad` "in_place", in its own memory: autograd then sees one input instead of all parameters, hooks on gradients
    are refused, and torch.autograd.grad does not find parameters. With `partition` a graph with operators that cannot be
    captured is divided, and what lies between them is captured. `buckets` are sizes of dimensions that a fast path pads
    tensors to: {0: (8, 16, 32)}. `max_recordings` bounds the recordings of one graph; past it `on_limit` decides. `or_error`
    raises where something runs uncaptured, as the environment variable DYNX_CUDAGRAPH_OR_ERROR=1 does. `plans` names a
    folder where plans are kept: a later process that compiles the same graph takes its plan and messages from there. `runtime`
    "auto" captures where there is CUDA and runs uncaptured elsewhere; "emulator" captures on the CPU, for tests.
    """

    inner: Literal["eager", "inductor"] = "eager"
    inputs: Literal["auto", "copy", "memcpy_node", "patch"] = "auto"
    params: Literal["rerecord", "patch"] = "rerecord"
    outputs: Literal["clone", "alias", "static"] = "clone"
    gradients: Literal["autograd", "in_place"] = "autograd"
    partition: bool = True
    buckets: Mapping[int, Sequence[int]] = field(default_factory=dict)
    max_recordings: int = 16
    on_limit: Literal["eager", "error", "lru"] = "eager"
    or_error: bool = False
    plans: str = ""
    runtime: Literal["auto", "cuda", "emulator"] = "auto"

    def __post_init__(self) -> None:
        if isinstance(self.plans, os.PathLike):
            object.__setattr__(self, "plans", os.fspath(self.plans))
        if os.environ.get(OR_ERROR, "0") not in ("", "0"):
            object.__setattr__(self, "or_error", True)
        hints = get_type_hints(Config)
        for each in (each for each in fields(self) if each.name != "buckets"):
            value, allowed = getattr(self, each.name), get_args(hints[each.name])
            if allowed and value not in allowed:
                choices = ", ".join(map(repr, allowed))
                raise UsageError(f"{each.name}={value!r} is no choice of dynx_cudagraphs\n  there is {choices}")
            if not allowed and type(value) is not hints[each.name]:
                raise UsageError(f"{each.name}={value!r} of dynx_cudagraphs is no {hints[each.name].__name__}")
        _check_buckets(self.buckets)
        if self.inner == "inductor" and self.runtime == "emulator":
            raise UsageError("the emulator sees operators, not inductor's kernels\n  use inner='eager' with it")
        if self.params == "patch" and self.inputs in ("copy", "memcpy_node"):
            raise UsageError(f"params='patch' tells inputs too\n  leave out inputs={self.inputs!r}, or use 'patch'")
        if self.params == "patch" and self.gradients == "in_place":
            raise UsageError("params='patch' is for graphs without gradients\n  leave out gradients='in_place'")
        if self.max_recordings < 1:
            raise UsageError(f"max_recordings={self.max_recordings} leaves nothing to replay\n  give at least 1")


def config_of(options: Mapping[str, Any]) -> Config:
    """Make a Config of the `options` of torch.compile. Raises UsageError for what there is not."""
    known = [each.name for each in fields(Config)]
    for name in options:
        if name not in known:
            raise UsageError(f"dynx_cudagraphs has no option {name!r}\n  there is {', '.join(known)}")
    return Config(**options)


def config_or_default(config: Config | None) -> Config:
    """Give a configuration, or that of default. Raises UsageError for what is none."""
    if config is not None and not isinstance(config, Config):
        raise UsageError(f"config is a {type(config).__name__}\n  give a cudagraphs.Config")
    return config or Config()


def _check_buckets(buckets: Mapping[int, Sequence[int]]) -> None:
    is_right = isinstance(buckets, Mapping) and all(
        isinstance(dim, int) and dim >= 0 and isinstance(sizes, Sequence) and sizes and all(map(_is_size, sizes))
        for dim, sizes in buckets.items()
    )
    if not is_right:
        raise UsageError(f"buckets={buckets!r} are no sizes of dimensions\n  such as {{0: (8, 16, 32)}}")


def _is_size(value: Any) -> bool:
    return isinstance(value, int) and value >= 1
