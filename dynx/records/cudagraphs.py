"""Records of CUDA graphs: how a graph is captured, what was captured, and what runs uncaptured.

A recording is a captured CUDA graph with the memory for its inputs and outputs. Static inputs are parameters and buffers, which
keep their addresses; dynamic inputs may have a new address in each call. Staging is how dynamic inputs reach a recording.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from dynx.records.location import Location
from dynx.records.record import Record
from dynx.records.shown import Shown

InputClass = Literal[
    "static",  # a parameter or buffer: read at its own address
    "managed",  # an output of another recording: read at the address where that recording wrote it
    "dynamic",  # another tensor on every call: copied to the address that the recording reads
    "scalar",  # a number: part of the key of a recording
    "generator",  # a random number generator: registered with the captured graph, whose replays advance its state
    "untouched",  # no operator reads it; an output may alias it
    "opaque",  # anything else: a graph with an opaque input is not captured
]
Part = Literal[
    "inference",
    "forward",
    "backward",
    "call",  # a function that torch.compile did not compile
    "step",  # a training step: forward, backward and optimizer step
]


@dataclass(frozen=True, slots=True)
class GraphInput(Record):
    """A placeholder (input) of an FX graph, and how its value reaches the captured CUDA graph."""

    name: str
    kind: InputClass
    why: str
    is_mutated: bool = False
    is_fixed: bool = False  # sizes and strides are the same on every call
    has_known_layout: bool = True  # its sizes are fixed, or follow from scalars among the inputs
    nbytes: int = 0  # 0 if its sizes are not fixed
    location: Location | None = None  # of its first use
    node: str = ""  # name of its node


SkipKind = Literal[
    "operator",  # an operator that cannot be captured
    "value",  # the host reads the value of a tensor
    "size",  # a size depends on values
    "limit",  # the number of recordings reached its limit
    "capture",  # capture failed
]


@dataclass(frozen=True, slots=True)
class Skip(Record):
    """The reason why an FX graph, or a part of it, runs without CUDA graph capture."""

    reason: str
    location: Location | None = None
    advice: str = ""
    kind: SkipKind = "operator"
    count: int = 1
    at: float = 0.0  # seconds since 1970


StagingKind = Literal[
    "copy",  # copied to the recording's memory before a replay
    "memcpy_node",  # copied by memcpy nodes of the graph, whose source pointers are set before a replay
    "patch",  # not copied: the pointers in the kernels' parameters are set before a replay
]


@dataclass(frozen=True, slots=True)
class Staging(Record):
    """How a captured CUDA graph gets inputs whose addresses change, and how it returns outputs; each with the reason."""

    kind: StagingKind
    reason: str
    outputs: Literal["clone", "alias", "static"] = "clone"
    outputs_reason: str = ""
    clones_in_graph: bool = False  # up to four outputs are cloned by memcpy nodes; otherwise all are cloned after a replay
    why_not_patched: str = ""  # if the configuration asks for "patch" and patching is not possible
    count: int = 1  # number of recordings


@dataclass(frozen=True, slots=True)
class GraphRecorded(Record):
    """The capture of one CUDA graph: its duration, the bytes that each replay copies, and the memory that the graph holds."""

    part: Part
    seconds: float
    copies: int  # input tensors copied in each replay
    bytes_copied: int
    bytes_held: int  # of memory that no other graph uses, for outputs and for copies of inputs
    began: float = 0.0  # seconds since 1970
    staging: Staging | None = None

    def __str__(self) -> str:
        inputs = "input" if self.copies == 1 else "inputs"
        copied = f"{self.copies} {inputs} copied, {self.bytes_copied:,} bytes" if self.copies else "nothing copied"
        return f"{self.part}: {copied}; {self.bytes_held:,} bytes held"


@dataclass(frozen=True, slots=True)
class AddressChange(Record):
    """The new address of a static input (parameter, buffer or saved tensor), which CUDA graphs read at a fixed address."""

    name: str
    before: int
    after: int
    times: int  # how often its address has changed, this time included
    location: Location | None = None  # of its first use
    is_copied: bool = False  # it is copied from now on, since its address changes often
    at: float = 0.0  # seconds since 1970


@dataclass(frozen=True, slots=True)
class PoolMemory(Record):
    """Device memory that CUDA graphs hold: one memory pool, which several graphs may share."""

    what: str  # the owner of the memory
    device: int  # index
    bytes_reserved: int  # allocated on the device, unavailable to everything else
    bytes_used: int  # part of `bytes_reserved` that live tensors use, such as results


@dataclass(frozen=True, slots=True)
class CudagraphStats(Record):
    """Counters of captures, replays and copies of all CUDA graphs of `dynx.cudagraphs` in this process."""

    recordings: int
    replays: int
    uncaptured: int  # uncaptured calls of graphs that are captured, or may be later
    copies: int  # input tensors copied to the address that a recording reads
    bytes_copied: int
    skips: tuple[Skip, ...] = ()
    address_changes: tuple[AddressChange, ...] = ()  # the last hundred
    staging: tuple[Staging, ...] = ()  # the different stagings of the recordings
    bytes_held: int = 0  # by recordings that are not closed, for outputs and for copies of inputs
    pools: tuple[PoolMemory, ...] = ()  # on CUDA devices
    verified: int = 0  # replays that were compared with uncaptured runs, by `verify`


@dataclass(frozen=True, slots=True)
class GraphPiece(Record):
    """A part of an FX graph that is split at operators which cannot be captured. The part is captured or runs uncaptured."""

    inputs: tuple[str, ...]  # names of nodes
    outputs: tuple[str, ...]
    launches: int  # nodes that launch kernels
    why_uncaptured: str = ""  # empty if the piece is captured
    nodes: tuple[str, ...] = ()  # names of the nodes that run in it


@dataclass(frozen=True, slots=True)
class GraphPlan(Record):
    """How an FX graph is captured: how each input reaches the CUDA graphs, the parts of a split graph, what is not captured."""

    part: Part
    inputs: tuple[GraphInput, ...]
    user_outputs: int  # further outputs are for the backward pass or for other parts of the graph
    skips: tuple[Skip, ...] = ()
    pieces: tuple[GraphPiece, ...] = ()  # in execution order; empty if the graph is captured as a whole
    returns_all_outputs: bool = True  # whether all outputs are returned to the caller, or only the user's
    passed: tuple[tuple[int, int], ...] = ()  # (output, input) indices of outputs that are untouched inputs
    is_pure: bool = False  # it mutates no input, so it may be run on trial
    regenerated: tuple[int, ...] = ()  # outputs whose layout AOTAutograd reads, to create views of other tensors
    is_differentiated: bool = False  # autograd sees its outputs: overlapping outputs are copied to storages of their own
    patches_params: bool = False  # parameters are inputs whose pointers are set, `params="patch"`

    def indices(self, *kinds: InputClass) -> tuple[int, ...]:
        """Return the indices of the inputs of these kinds (`GraphInput.kind`), as in `plan.indices("static", "dynamic")`."""
        return tuple(index for index, placeholder in enumerate(self.inputs) if placeholder.kind in kinds)

    @property
    def unknown_layouts(self) -> tuple[int, ...]:
        """The indices of the inputs whose sizes are neither fixed nor computable from scalar inputs."""
        return tuple(index for index, placeholder in enumerate(self.inputs) if not placeholder.has_known_layout)

    @property
    def mutated(self) -> tuple[int, ...]:
        """The indices of the inputs that the graph mutates."""
        return tuple(index for index, placeholder in enumerate(self.inputs) if placeholder.is_mutated)


@dataclass(frozen=True, slots=True)
class GraphUse(Record):
    """The plan for capturing one FX graph, and counters of its recordings (captured CUDA graphs) and replays."""

    plan: GraphPlan
    recordings: int
    replays: int
    copies: int  # input tensors copied, for one call of each recording
    bytes_copied: int
    bytes_held: int  # by recordings only, for outputs and for copies of inputs
    notes: tuple[str, ...] = ()
    staging: tuple[Staging, ...] = ()  # the different stagings of its recordings


@dataclass(frozen=True, slots=True)
class CudagraphReport(Shown):
    """How the FX graphs of a function are captured, in the order in which they were compiled."""

    graphs: tuple[GraphUse, ...]
    notes: tuple[str, ...] = ()
    pools: tuple[PoolMemory, ...] = ()  # memory pools of these graphs, on CUDA devices

    def __repr__(self) -> str:
        captured = sum(use.recordings > 0 for use in self.graphs)
        return f"<CudagraphReport: {captured} of {len(self.graphs)} graphs captured>"
