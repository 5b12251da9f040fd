"""Records of compiled autograd: captures of backward passes, their nodes and hooks, and why a pass was captured again."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

from dynx.records.location import Location
from dynx.records.record import IN_PROCESS, OfCompile, Record

HookKind = Literal[
    "tensor_pre_hook", "cpp_tensor_pre_hook", "pre_hook", "post_hook", "post_acc_grad_hook", "unpack_hook", "callback"
]
RecaptureKind = Literal[
    "first", "shape", "structure", "value", "dtype", "frozen", "function", "compiled", "hook", "grad", "request", "unknown"
]


@dataclass(frozen=True, slots=True)
class BackwardHook(Record):
    """A hook that a captured backward pass calls; `function` is empty for a hook of C++, such as that of `retain_grad()`."""

    kind: HookKind
    function: str
    location: Location | None = None


@dataclass(frozen=True, slots=True)
class BackwardNode(Record):
    """A node of an autograd graph, in the order of the backward pass; torch names it "PowBackward0 (NodeCall 2)".

    `location` is the line of the forward operation, or the `forward` of a custom Function. `operations` counts the nodes of the
    captured graph that compute.
    """

    number: int
    name: str
    location: Location | None = None
    function: str = ""  # of a custom `torch.autograd.Function`: "module.Class"
    parameter: str = ""  # whose `.grad` an AccumulateGrad node adds to: "layers.0.weight"
    hooks: tuple[BackwardHook, ...] = ()
    operations: int = 0

    def __str__(self) -> str:
        subject = self.function or self.parameter
        return f"{self.name.rpartition(':')[2]} (NodeCall {self.number}{f', {subject}' if subject else ''})"


@dataclass(frozen=True, slots=True)
class RecaptureReason(Record):
    """What differs between a backward pass and the most similar earlier capture: `before` there, `after` here.

    `kind` "first" is the first capture; "unknown" is a difference that only torch sees, of which `torch` has its words.
    """

    kind: RecaptureKind
    subject: str
    before: str = ""
    after: str = ""
    node: BackwardNode | None = None
    location: Location | None = None
    torch: str = ""

    def __str__(self) -> str:
        if self.kind == "first":
            return "the first capture"
        if self.kind == "unknown":
            return f"unknown; torch says: {self.torch}"
        of = f"{self.node}: " if self.node is not None else ""
        at = f" at {self.location}" if self.location is not None else ""
        return f"{of}{self.subject} {self.before}, then {self.after}{at}"


@dataclass(frozen=True, slots=True)
class OrderError(Record):
    """A node of a captured graph that is not where eager autograd would run it: `rule` as in `dynx.autograd.check_order`."""

    rule: HookKind | Literal["accumulate_grad"]
    node: str
    message: str

    def __str__(self) -> str:
        return f"{self.node}: {self.message}"


@dataclass(frozen=True, slots=True)
class BackwardCapture(OfCompile, Record):
    """A backward pass that compiled autograd captured as one graph; torch's compile ids of its graphs begin with `id`.

    `seconds` are those of the capture, with compiling the graph's code; `calls` counts the passes that ran it so far.
    `sizes` is the number of sizes of saved tensors, and `dynamic_sizes` those that the graph uses. `graph` is the
    `torch.fx.GraphModule`.
    """

    generation: int
    id: str  # "!0"
    location: Location | None  # of the call of backward()
    seconds: float
    reasons: tuple[RecaptureReason, ...]
    nodes: tuple[BackwardNode, ...]
    inputs: int
    sizes: int
    dynamic_sizes: int
    calls: int
    order_errors: tuple[OrderError, ...] = ()
    moved: int = 0  # nodes that torch moved so that hooks and gradients are in the order of eager autograd
    graph: Any = field(default=None, metadata=IN_PROCESS, compare=False, repr=False)

    @property
    def reason(self) -> RecaptureReason:
        """The first of the reasons; "unknown" if there is none."""
        return self.reasons[0] if self.reasons else RecaptureReason("unknown", "")

    @property
    def is_recapture(self) -> bool:
        """Whether an earlier pass of the block or watch was captured."""
        return self.reason.kind != "first"

    @property
    def hooks(self) -> tuple[BackwardHook, ...]:
        """The hooks of all nodes."""
        return tuple(hook for node in self.nodes for hook in node.hooks)

    @property
    def code(self) -> str:
        """The Python code of the captured graph; empty for a capture that was read from a file."""
        return str(self.graph.code) if self.graph is not None else ""


def latest(records: Iterable[BackwardCapture]) -> tuple[BackwardCapture, ...]:
    """Keep the last record of each capture, which is written again with the number of its calls."""
    return tuple({record.key: record for record in records}.values())
