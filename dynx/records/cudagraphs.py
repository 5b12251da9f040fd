"""What a CUDA graph backend makes of a compiled graph."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from dynx.records.location import Location
from dynx.records.record import Record
from dynx.records.shown import Shown

InputClass = Literal[
    "static",  # a parameter or buffer: read where it lies
    "managed",  # an output of another recording: lies where that wrote it
    "dynamic",  # another tensor on every call: copied to where the recording reads
    "scalar",  # a number: part of what a recording is kept by
    "untouched",  # no operator reads it: a result, if anything, that is handed on as it is
    "opaque",  # anything else: a graph with one is not captured
]
Part = Literal[
    "inference",
    "forward",
    "backward",
    "call",  # of a function that was not compiled
    "step",  # of training: forward, backward and optimizer
]


@dataclass(frozen=True, slots=True)
class GraphInput(Record):
    """A placeholder of a graph, and how its value reaches a recording."""

    name: str
    kind: InputClass
    why: str
    is_mutated: bool = False
    is_fixed: bool = False  # sizes and strides are the same on every call
    is_told: bool = True  # or they follow from numbers among the inputs
    nbytes: int = 0  # where they are
    location: Location | None = None  # of its first use
    node: str = ""  # in the graph


SkipKind = Literal[
    "operator",  # one that cannot be captured
    "value",  # of a tensor, that is read
    "size",  # that depends on values
    "limit",  # of recordings
    "capture",  # that failed
]


@dataclass(frozen=True, slots=True)
class Skip(Record):
    """Why a graph, or a part of it, is run uncaptured."""

    reason: str
    location: Location | None = None
    advice: str = ""
    kind: SkipKind = "operator"
    count: int = 1
    at: float = 0.0  # when it was seen, in seconds since 1970


StagingKind = Literal[
    "copy",  # copied to the recording's memory before a replay
    "memcpy_node",  # copied by memcpy nodes of the graph, whose source pointers are set before a replay
    "patch",  # not copied: the pointers in the kernels' parameters are set before a replay
]


@dataclass(frozen=True, slots=True)
class Staging(Record):
    """How dynamic inputs reach a captured graph in each replay, and how its results reach the caller; each with the reason."""

    kind: StagingKind
    reason: str
    outputs: Literal["clone", "alias", "static"] = "clone"
    outputs_reason: str = ""
    clones_in_graph: bool = False  # up to four results are cloned by memcpy nodes; otherwise all are cloned after a replay
    why_not_patched: str = ""  # where the configuration asks for "patch" and that is not possible
    count: int = 1  # of recordings


@dataclass(frozen=True, slots=True)
class GraphRecorded(Record):
    """A graph that was captured."""

    part: Part
    seconds: float
    copies: int  # of inputs, in each replay
    bytes_copied: int
    bytes_held: int  # that no other graph uses, for results and for copies of inputs
    began: float = 0.0  # seconds since 1970
    staging: Staging | None = None

    def __str__(self) -> str:
        inputs = "input" if self.copies == 1 else "inputs"
        copied = f"{self.copies} {inputs} copied, {self.bytes_copied:,} bytes" if self.copies else "nothing copied"
        return f"{self.part}: {copied}; {self.bytes_held:,} bytes held"


@dataclass(frozen=True, slots=True)
class AddressChange(Record):
    """A parameter, buffer or saved tensor that was found somewhere else than before."""

    name: str
    before: int
    after: int
    times: int  # that it has moved, with this
    location: Location | None = None  # of its first use
    is_copied: bool = False  # from now on, since it moves often
    at: float = 0.0  # when it was seen, in seconds since 1970


@dataclass(frozen=True, slots=True)
class CudagraphStats(Record):
    """What was done in this process, over all graphs."""

    recordings: int
    replays: int
    uncaptured: int  # calls of graphs that are, or may be, captured
    copies: int  # of inputs, to where a recording reads them
    bytes_copied: int
    skips: tuple[Skip, ...] = ()
    address_changes: tuple[AddressChange, ...] = ()  # the last hundred
    staging: tuple[Staging, ...] = ()  # of the recordings, each choice once


@dataclass(frozen=True, slots=True)
class GraphPiece(Record):
    """A part of a graph that is divided, since some of its operators cannot be captured."""

    inputs: tuple[str, ...]  # names of nodes
    outputs: tuple[str, ...]
    launches: int  # nodes that do work on the device
    why_uncaptured: str = ""  # nothing, where it is captured
    nodes: tuple[str, ...] = ()  # that run in it


@dataclass(frozen=True, slots=True)
class GraphPlan(Record):
    """How a graph is captured: plain data, from which a second process can go on without looking at the graph."""

    part: Part
    inputs: tuple[GraphInput, ...]
    user_outputs: int  # the outputs behind them are for the backward pass, or for other parts of the graph
    skips: tuple[Skip, ...] = ()
    pieces: tuple[GraphPiece, ...] = ()  # in the order in which they run; none where the graph is captured as a whole
    are_all_handed_out: bool = True  # or the user's only
    passed: tuple[tuple[int, int], ...] = ()  # outputs that are untouched inputs: the indices of both
    is_pure: bool = False  # it changes nothing that it is given, so it may be run to try it
    regenerated: tuple[int, ...] = ()  # outputs of which AOTAutograd reads the layout, to make views of other tensors
    is_differentiated: bool = False  # autograd sees its results: those that overlap are copied apart
    patches_params: bool = False  # parameters are inputs whose pointers are set, `params="patch"`

    def indices(self, *kinds: InputClass) -> tuple[int, ...]:
        return tuple(index for index, each in enumerate(self.inputs) if each.kind in kinds)

    @property
    def untold(self) -> tuple[int, ...]:
        """Give the inputs whose sizes no number tells."""
        return tuple(index for index, each in enumerate(self.inputs) if not each.is_told)

    @property
    def mutated(self) -> tuple[int, ...]:
        return tuple(index for index, each in enumerate(self.inputs) if each.is_mutated)


@dataclass(frozen=True, slots=True)
class GraphUse(Record):
    """What became of a graph."""

    plan: GraphPlan
    recordings: int
    replays: int
    copies: int  # of inputs, for a call of each recording
    bytes_copied: int
    bytes_held: int  # by recordings alone, for results and for copies of inputs
    notes: tuple[str, ...] = ()
    staging: tuple[Staging, ...] = ()  # of its recordings, each choice once


@dataclass(frozen=True, slots=True)
class CudagraphReport(Shown):
    """What became of the graphs of a function, in the order in which they were compiled."""

    graphs: tuple[GraphUse, ...]
    notes: tuple[str, ...] = ()

    def to_dot(self) -> str:
        """Give the graphs with their inputs and pieces in the language of Graphviz: `dot -Tsvg`."""
        from dynx.report import dot

        return dot(self)

    def __repr__(self) -> str:
        captured = sum(each.recordings > 0 for each in self.graphs)
        return f"<CudagraphReport: {captured} of {len(self.graphs)} graphs captured>"
