"""Records of tensors that a forward graph saves for backward, and of how they are stored.

Under `saved.hooks(*rules)`, forward packs the tensors that a rule selects into fewer bytes, and backward unpacks them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from dynx.records.location import Location
from dynx.records.record import Record

SavedKind = Literal[
    "activation",  # computed in the graph
    "param",
    "buffer",
    "input",  # another input of the graph
    "output",  # computed in the graph and returned by it: in memory as long as the caller keeps it
    "constant",
]


@dataclass(frozen=True, slots=True)
class SavedTensor(Record):
    """A tensor that a forward graph saves for backward."""

    name: str  # of its node in the forward graph
    kind: SavedKind  # also of a view of a parameter, buffer, input or output
    op: str  # "aten.gelu.default"; empty for an input
    dtype: str
    shape: tuple[int, ...]  # a dynamic size as in the call that was compiled
    bytes: int
    saved_bytes: int  # as stored between forward and backward
    codec: str | None = None  # "fp8(row)"; None if it is stored as it is
    rule: str | None = None  # "rule(fp8(row), min_numel=1024)"
    is_exact: bool = True  # every element is the same in backward
    keeps_mask: bool = True  # an element is 0 in backward only if it was 0 in forward
    why: str = ""  # why no rule applies
    location: Location | None = None  # the line that computed it
    module: str | None = None  # "layers.0.mlp: MLP"
    used_by: tuple[str, ...] = ()  # the operators of backward that read it: "aten.mm.default"
    reads_as_mask: bool = False  # backward reads which elements are 0, or their signs
    computed_from: tuple[str, ...] = ()  # with recompute(): the saved tensors and inputs it is computed from
    enlarged_by: tuple[str, ...] = ()  # operators that backward runs on it again and that enlarge its error, such as exp

    @property
    def is_activation(self) -> bool:
        return self.kind == "activation"


@dataclass(frozen=True, slots=True)
class PeakTensor(Record):
    """A tensor that is alive at the memory peak of a forward or backward graph."""

    name: str  # of its node in that graph
    op: str  # "aten.mm.default"; empty for an input
    bytes: int
    role: Literal["saved", "output", "temporary"]  # "saved" by forward, and returned from backward, such as gradients
    location: Location | None = None  # the line of forward that it belongs to


@dataclass(frozen=True, slots=True)
class SavedGraph(Record):
    """The tensors that one forward graph saves for backward."""

    generation: int
    id: str  # compile id "0/0"
    location: Location | None  # the function
    tensors: tuple[SavedTensor, ...]
    hooks: bool = False  # compiled under `saved.hooks`
    rules: tuple[str, ...] = ()  # of those hooks, in their order
    forward_peak: int = 0  # most bytes allocated at once, simulated in the order of the graph, without its inputs
    backward_peak: int = 0  # the same of backward, with the saved tensors
    forward_peak_before: int = 0  # before tensors were packed
    backward_peak_before: int = 0
    at_peak: tuple[PeakTensor, ...] = ()  # with the most bytes first, those of at least 1 % of the larger of the two peaks

    @property
    def rounded(self) -> tuple[SavedTensor, ...]:
        """The saved tensors that are stored with loss of precision."""
        return tuple(tensor for tensor in self.tensors if tensor.codec is not None and not tensor.is_exact)

    @property
    def activations(self) -> tuple[SavedTensor, ...]:
        """The saved tensors that take memory of their own: not the parameters, buffers, inputs and outputs of the graph."""
        return tuple(tensor for tensor in self.tensors if tensor.is_activation)

    @property
    def bytes(self) -> int:
        """The bytes that the activations would take if no rule of `saved.hooks` packed them."""
        return sum(tensor.bytes for tensor in self.activations)

    @property
    def saved_bytes(self) -> int:
        """The bytes that the activations take between forward and backward, after the rules of `saved.hooks` packed them."""
        return sum(tensor.saved_bytes for tensor in self.activations)

    @property
    def unused_rules(self) -> tuple[str, ...]:
        """The rules of `saved.hooks` that apply to no tensor of the graph."""
        used = {tensor.rule for tensor in self.tensors}
        return tuple(rule for rule in self.rules if rule not in used)
