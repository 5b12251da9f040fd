"""The options of `backend="dynx_cudagraphs"`, `fast_path`, `graphed` and `train_step`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal, get_args, get_type_hints

from dynx.errors import UsageError

OR_ERROR = "DYNX_CUDAGRAPH_OR_ERROR"
VERIFY = "DYNX_CUDAGRAPH_VERIFY"


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Options of `backend="dynx_cudagraphs"`, `fast_path`, `graphed` and `train_step`.

    With torch.compile, pass the same names as `options={...}`.

    Attributes:
        inner: What a captured graph runs: "eager" the operators of the graph, "inductor" the kernels that inductor compiles.
        inputs: How dynamic inputs (tensors with a new address in each call) reach a captured graph. "copy" copies them before
            each replay; "memcpy_node" lets memcpy nodes in the graph copy them, and sets their source pointers before each
            replay; "patch" sets the pointers inside the kernels' parameters, so that nothing is copied (verified at capture;
            falls back to copies where that fails). "auto" uses memcpy nodes for up to four inputs and copies otherwise.
            "memcpy_node" and "patch" need cuda-bindings.
        params: What happens when a parameter has a new address: "rerecord" captures again, "patch" sets the new pointer (graphs
            without gradients only; implies `inputs="patch"`).
        outputs: "clone" returns copies that the caller keeps; "alias" returns tensors that are valid until the next call
            and raise afterwards; "static" returns the recording's own tensors, which its next replay overwrites.
        gradients: "autograd" passes gradients of parameters through autograd; "in_place" lets the graph write them to
            `.grad`, in the graph's memory. Autograd then sees one input instead of all parameters: gradient hooks are
            refused, and `torch.autograd.grad` does not find parameters.
        partition: Split a graph around operators that cannot be captured, and capture the pieces between them.
        buckets: Sizes that `fast_path` pads dimensions to, by dimension: `{0: (8, 16, 32)}`.
        max_recordings: Largest number of recordings (captured CUDA graphs) of one graph or function.
        on_limit: What happens if a call needs more than `max_recordings`: "eager" runs it uncaptured, "error" raises
            CaptureError, "lru" closes the least recently used recording.
        or_error: Raise CaptureError where something would run uncaptured, and split no graph; also set by
            DYNX_CUDAGRAPH_OR_ERROR=1.
        verify: Number of replays of each recording that are compared with uncaptured runs of the same calls, byte by byte:
            results, what is written to memory, gradients, and RNG states. A replay that differs raises
            ReplayDiffers. Python effects that no check sees, such as `print`, happen in these calls and not in later replays.
            Needs memory for two copies of what a call writes to. DYNX_CUDAGRAPH_VERIFY=n sets it where it is 0.
        runtime: "auto" captures if there is a CUDA device, and runs uncaptured otherwise; "cuda" requires a CUDA device;
            "emulator" emulates captures and replays on the CPU, for tests.
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
    verify: int = 0
    runtime: Literal["auto", "cuda", "emulator"] = "auto"

    def __post_init__(self) -> None:
        if os.environ.get(OR_ERROR, "0") not in ("", "0"):
            object.__setattr__(self, "or_error", True)
        if not self.verify and (times := os.environ.get(VERIFY, "")):
            if not times.isdigit():
                raise UsageError(f"{VERIFY}={times} is not a number of replays\n  set it to 0 to verify none")
            object.__setattr__(self, "verify", int(times))
        hints = get_type_hints(Config)
        for option in (option for option in fields(self) if option.name != "buckets"):
            value, choices = getattr(self, option.name), get_args(hints[option.name])
            if choices and value not in choices:
                raise UsageError(
                    f"{option.name}={value!r} is not a valid option value of dynx_cudagraphs\n"
                    f"  valid choices: {', '.join(map(repr, choices))}"
                )
            if not choices and type(value) is not hints[option.name]:
                expected = hints[option.name].__name__
                raise UsageError(f"{option.name}={value!r} of dynx_cudagraphs must be of type {expected}")
        _check_buckets(self.buckets)
        if self.inner == "inductor" and self.runtime == "emulator":
            raise UsageError(
                "runtime='emulator' does not work with inner='inductor': it emulates operators, not inductor's kernels\n"
                "  use inner='eager'"
            )
        if self.params == "patch" and self.inputs in ("copy", "memcpy_node"):
            raise UsageError(
                f"params='patch' patches inputs too, so it contradicts inputs={self.inputs!r}\n"
                "  leave out inputs, or pass inputs='patch'"
            )
        if self.params == "patch" and self.gradients == "in_place":
            raise UsageError(
                "params='patch' works only for graphs without gradients, so it contradicts gradients='in_place'\n"
                "  leave out one of them"
            )
        if self.verify < 0:
            raise UsageError(f"verify={self.verify} is not a number of replays\n  pass 0 to verify none")
        if self.max_recordings < 1:
            raise UsageError(f"max_recordings={self.max_recordings} allows no recordings\n  pass at least 1")


def config_of(options: Mapping[str, Any]) -> Config:
    """Build a Config from the `options` of torch.compile. Raises UsageError for an unknown option or value."""
    names = [option.name for option in fields(Config)]
    for name in options:
        if name not in names:
            raise UsageError(f"dynx_cudagraphs has no option {name!r}\n  valid options: {', '.join(names)}")
    return Config(**options)


def config_or_default(config: Config | None) -> Config:
    """Return `config`, or the default Config if it is None. Raises UsageError for any other object."""
    if config is not None and not isinstance(config, Config):
        raise UsageError(f"config is of type {type(config).__name__}, not a Config\n  pass a cudagraphs.Config")
    return config or Config()


def _check_buckets(buckets: Mapping[int, Sequence[int]]) -> None:
    is_valid = isinstance(buckets, Mapping) and all(
        isinstance(dim, int) and dim >= 0 and isinstance(sizes, Sequence) and sizes and all(map(_is_size, sizes))
        for dim, sizes in buckets.items()
    )
    if not is_valid:
        raise UsageError(f"buckets={buckets!r} does not map dimensions to sizes\n  pass for example {{0: (8, 16, 32)}}")


def _is_size(value: Any) -> bool:
    return isinstance(value, int) and value >= 1
