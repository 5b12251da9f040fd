"""Records of compiled autograd: captures of backward passes, their nodes and hooks, and why a pass was captured again."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from dynx.records.location import Location
from dynx.records.record import IN_PROCESS, OfCompile, Record
from dynx.records.shown import Shown

HookKind = Literal[
    "tensor_pre_hook", "cpp_tensor_pre_hook", "pre_hook", "post_hook", "post_acc_grad_hook", "unpack_hook", "callback"
]
RecaptureKind = Literal[
    "first", "shape", "structure", "value", "dtype", "frozen", "function", "compiled", "hook", "grad", "request", "unknown"
]


_NAMESPACES = re.compile(r"(\(anonymous namespace\)|\w+)::")


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
    captured graph that compute. `is_eager` tells that a node of C++ which does not declare `is_traceable` breaks the graph, and
    runs uncompiled.
    """

    number: int
    name: str
    location: Location | None = None
    function: str = ""  # of a custom `torch.autograd.Function`: "module.Class"
    parameter: str = ""  # whose `.grad` an AccumulateGrad node adds to: "layers.0.weight"
    module: str = ""  # in whose forward pass it was made: "layers.0"; the class of the outermost module
    hooks: tuple[BackwardHook, ...] = ()
    operations: int = 0
    is_eager: bool = False

    @property
    def short_name(self) -> str:
        """The name without namespaces of C++: "PowBackward0", "CppNode<AllToAllSingle>"."""
        return _NAMESPACES.sub("", self.name)

    def __str__(self) -> str:
        own = "" if self.function.startswith("torch.") else self.function  # the name of the node has that of a class of torch
        subject = own or self.parameter or self.module
        return f"{self.short_name} (NodeCall {self.number}{f', {subject}' if subject else ''})"


@dataclass(frozen=True, slots=True)
class RecaptureReason(Record):
    """What differs between a backward pass and the most similar earlier capture: `before` there, `after` here.

    `kind` "first" is the first capture; "unknown" is a difference that only torch sees, of which `torch` has its words. Another
    class of a custom Function may have the same name as `before`.
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
            return f"unknown; torch says: {self.torch}" if self.torch else "unknown"
        of = f"{self.node}: " if self.node is not None else ""
        at = f" at {self.location}" if self.location is not None else ""
        return f"{of}{self.change}{at}"

    @property
    def changed_to(self) -> str:
        """`after` in words."""
        return self.after if self.after != self.before else "another class of that name"

    @property
    def change(self) -> str:
        """The subject with both values, if they are known."""
        return self.subject if self.before == self.after == "" else f"{self.subject} {self.before}, then {self.changed_to}"


@dataclass(frozen=True, slots=True)
class OrderError(Record):
    """A node of a captured graph that is not where eager autograd would run it: `rule` as in `dynx.autograd.check_order`."""

    rule: HookKind | Literal["accumulate_grad"]
    node: str
    message: str

    def __str__(self) -> str:
        return f"{self.node}: {self.message}"


@dataclass(frozen=True, slots=True)
class BackwardCapture(OfCompile, Shown):
    """A backward pass that compiled autograd captured as one graph; torch's compile ids of its graphs begin with `id`.

    `seconds` are those of the capture, and `phases` splits them: trace (the autograd nodes), reorder (of hooks and gradients),
    code (of the graph), and backend (what the compiler of the graphs does before the first call). `torch.compile` compiles
    the graph in its first call, which is a `Compile` with this `id`. `calls` counts the passes that ran the graph so far.
    `sizes` is the number of sizes that were dynamic then, and `dynamic_sizes` those that the graph uses. `graph` is the
    `torch.fx.GraphModule`, and `code` its Python code with a comment above the part of each node; a `CaptureLog` has them.
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
    began: float = 0.0  # seconds since 1970
    phases: Mapping[str, float] = field(default_factory=dict)
    graph: Any = field(default=None, metadata=IN_PROCESS, compare=False, repr=False)
    code: str = field(default="", metadata=IN_PROCESS, compare=False, repr=False)

    def __repr__(self) -> str:
        return f"<BackwardCapture {self.id}: {self.reason}; {len(self.nodes)} nodes, {self.calls} calls>"

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


@dataclass(frozen=True, slots=True)
class CaptureVerdict(Shown):
    """Whether a backward pass would be captured, predicted without running it. Its truth value is True for "capture".

    `reasons` has what differs from the most similar capture. `why` is set for "unknown": torch's key has parts that cannot be
    read, such as sizes and hooks of intermediate results, so that a pass without a difference may be captured all the same.
    """

    outcome: Literal["capture", "unknown"]
    reasons: tuple[RecaptureReason, ...] = ()
    why: str = ""

    def __bool__(self) -> bool:
        return self.outcome == "capture"

    def __repr__(self) -> str:
        return f"<CaptureVerdict: {'; '.join([self.outcome, *filter(None, [self.why]), *map(str, self.reasons)])}>"


@dataclass(frozen=True, slots=True)
class CaptureReport(Shown):
    """The captures of a block, as a `CaptureLog` shows them on a terminal and in a notebook."""

    captures: tuple[BackwardCapture, ...]


def latest(records: Iterable[BackwardCapture]) -> tuple[BackwardCapture, ...]:
    """Keep the last record of each capture, which is written again with the number of its calls."""
    return tuple({record.key: record for record in records}.values())
