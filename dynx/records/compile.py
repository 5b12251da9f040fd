"""Records of a compilation: its attempts, its outcome and its backward graph; and of functions that run eagerly."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from dynx.records.location import Location
from dynx.records.record import OfCompile, Record

Outcome = Literal["compiled", "skipped", "failed", "gave_up"]
AttemptOutcome = Literal["committed", "restarted", "skipped", "failed"]


@dataclass(frozen=True, slots=True)
class Attempt(Record):
    """One attempt of Dynamo to trace a frame. Dynamo discards it and restarts after a graph break, and in a few other cases."""

    index: int
    outcome: AttemptOutcome
    seconds: float
    reason: str | None = None  # why it was discarded; None when it was committed


@dataclass(frozen=True, slots=True)
class Repeated(Record):
    """Modules of one list that do the same in a graph: the same operations on values of the same shapes.

    If they differ in values that torch guards, such as a number of the layer, one compilation does not serve all of them.
    """

    source: str  # of the list: "self.layers"
    type_name: str  # class of the modules
    count: int
    share: float  # of the graph's operations
    differ: tuple[str, ...] = ()  # names of guarded values: "attention.layer_idx"


@dataclass(frozen=True, slots=True)
class Compile(OfCompile, Record):
    """One compilation of a frame, from the call that triggered it to its end.

    `phases` splits `seconds`, the wall time, into trace, aot (AOTAutograd), backend, autotuning (in which inductor times
    variants of an operator), kernels (in which it waits for the compilers of C++ and Triton code) and guards. `nodes` counts
    the operations in the graph, `guards` the guards that Dynamo requested. Compile ids repeat after `torch._dynamo.reset()`;
    `generation` counts these resets, so (`generation`, `id`) is the key of a compilation.
    """

    generation: int
    id: str  # "0/1": frame 0, compiled for the second time
    location: Location  # first line of the function
    outcome: Outcome
    seconds: float
    attempts: tuple[Attempt, ...] = ()
    phases: Mapping[str, float] = field(default_factory=dict)
    nodes: int | None = None
    guards: int | None = None
    backend: str | None = None
    reason: str | None = None  # why it was skipped, failed or gave up
    resumes: int | None = None  # for a resume function: the line of its graph break
    called_from: Location | None = None  # the line that called the compiled function
    began: float = 0.0  # seconds since 1970; 0 in runs of an older dynx
    failed_at: Location | None = None  # the line at which the compilation failed
    code: str = ""  # the source line at `failed_at`, or of the graph break that a resume function continues after
    automatic_dynamic: bool = True  # whether sizes that change become dynamic: not with `dynamic=False`
    of_dynx: bool = False  # compiled by a function of dynx, such as `dynx.check`, apart from the program's own code
    repeated: Repeated | None = None

    @property
    def is_recompile(self) -> bool:
        """Whether the frame had been compiled before: the compile id does not end in `/0`."""
        return not self.id.endswith("/0")

    @property
    def has_no_operation(self) -> bool:
        """Whether Dynamo skipped the call because it has no tensor operation; torch says so since 2.13."""
        return self.outcome == "skipped" and "no ops traced" in (self.reason or "").lower()

    @property
    def backend_seconds(self) -> float:
        """The seconds of the backend, with autotuning and the compilers that it waits for."""
        return sum(self.phases.get(name, 0.0) for name in ("backend", "autotuning", "kernels"))


@dataclass(frozen=True, slots=True)
class Backward(Record):
    """The backward graph of a compiled function, if it was compiled later than the forward, at the first `backward()`."""

    generation: int
    id: str
    seconds: float
    began: float = 0.0


@dataclass(frozen=True, slots=True)
class GaveUp(Record):
    """A function that reached a recompile limit: from then on, calls that match no cache entry run eagerly.

    Under `fullgraph=True` they raise instead (`fatal`).
    """

    generation: int
    id: str
    location: Location
    limit: str  # "recompile_limit" or "accumulated_recompile_limit"
    allowed: int | None = None
    called_from: Location | None = None  # the line of the call that reached the limit
    fatal: bool = False


@dataclass(frozen=True, slots=True)
class CompileUse(Record):
    """How a program used torch.compile, in a run in which nothing was compiled."""

    prepared: int  # calls of torch.compile that returned a compilable function
    why_not: tuple[str, ...] = ()  # why other calls did not: "disable=True", "TORCHDYNAMO_DISABLE=1"
    raised: tuple[str, ...] = ()  # exceptions of torch.compile: "InvalidBackend: …"
    called: bool = False  # whether a compiled function was called under another stance than "force_eager"
    call: Location | None = None  # the line of the first such call
    forced_eager: bool = False  # whether a compiled function was called under `set_stance("force_eager")`
    eager_call: Location | None = None  # the line of the first such call
    disabled: bool = False  # whether `torch._dynamo.config.disable` was on in the first call
    modes: tuple[str, ...] = ()  # the torch dispatch modes of the first call, under which torch compiles nothing


@dataclass(frozen=True, slots=True)
class Skipped(Record):
    """A function that Dynamo skipped without a warning, so that it runs eagerly."""

    location: Location
    reason: str
    count: int = 1
