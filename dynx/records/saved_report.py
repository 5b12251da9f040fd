"""Results of `dynx.saved`: the tensors that a function saves for backward, errors of gradients, and a plan for a byte budget.

A rule of `saved.hooks(*rules)` selects saved tensors: forward packs them into fewer bytes, and backward unpacks them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from dynx.records.record import Record
from dynx.records.saved import SavedGraph, SavedTensor
from dynx.records.shown import Shown


@dataclass(frozen=True, slots=True)
class SavedReport(Shown):
    """The result of `saved.report`: the tensors that a function saves for backward, in graphs and in eager code between graphs.

    `forward_peak` and `backward_peak` are the most bytes allocated at once, in addition to those allocated before the call.
    They are measured on CUDA; otherwise they are simulated for each graph in the order of its nodes, and the largest is taken.
    """

    graphs: tuple[SavedGraph, ...]
    eager: tuple[SavedTensor, ...] = ()  # saved under hooks of dynx outside of graphs
    forward_peak: int = 0
    backward_peak: int = 0
    peaks: Literal["simulated", "measured"] = "simulated"
    rules: tuple[str, ...] = ()

    @property
    def tensors(self) -> tuple[SavedTensor, ...]:
        """All saved tensors: first those that graphs save, then those of eager code."""
        return tuple(tensor for graph in self.graphs for tensor in graph.tensors) + self.eager

    @property
    def activations(self) -> tuple[SavedTensor, ...]:
        """The saved tensors that take memory of their own, not parameters, buffers, inputs or outputs; the largest first."""
        return tuple(sorted((one for one in self.tensors if one.is_activation), key=lambda one: -one.bytes))

    @property
    def bytes(self) -> int:
        """The bytes that the activations would take if no rule of `saved.hooks` packed them."""
        return sum(tensor.bytes for tensor in self.activations)

    @property
    def saved_bytes(self) -> int:
        """The bytes that the activations take between forward and backward, after the rules of `saved.hooks` packed them."""
        return sum(tensor.saved_bytes for tensor in self.activations)

    @property
    def held_bytes(self) -> int:
        """The bytes of the saved parameters, buffers, inputs and outputs that no rule of `saved.hooks` packs.

        Saving them takes no further memory as long as the caller keeps them.
        """
        return sum(tensor.bytes for tensor in self.tensors if not tensor.is_activation and tensor.codec is None)


@dataclass(frozen=True, slots=True)
class ParameterError(Record):
    """The error that packing saved tensors causes in the gradient of one parameter."""

    name: str
    cosine: float  # 1 for the same direction
    relative: float  # norm of the difference, relative to the norm of the gradient
    numel: int


@dataclass(frozen=True, slots=True)
class GradError(Shown):
    """The result of `saved.grad_error`: the errors that packing saved tensors causes in the gradients."""

    cosine: float  # of all gradients as one vector
    relative: float
    parameters: tuple[ParameterError, ...]  # the largest relative error first
    bytes: int = 0  # of the activations before they are packed
    saved_bytes: int = 0
    rules: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TriedRule(Record):
    """A rule that `saved.plan` tried separately from all others: one codec for one saved tensor, selected by its name."""

    rule: str
    freed_bytes: int
    relative: float  # error of all gradients
    seconds: float | None = None  # to pack and unpack its tensors once, not compiled; None if not measured


@dataclass(frozen=True, slots=True)
class SavedPlan(Shown):
    """The result of `saved.plan`: rules with which saved activations fit a budget in bytes, and all rules that were tried."""

    code: str  # Python code that makes the hooks
    rules: tuple[str, ...]
    bytes: int  # of the activations without rules
    saved_bytes: int  # with the rules
    budget: int  # in bytes
    relative: float  # error of all gradients with the rules
    cosine: float
    tried: tuple[TriedRule, ...]
    notes: tuple[str, ...] = ()
    seconds: float | None = None  # of forward and backward with the rules
    seconds_before: float | None = None  # without the rules

    @property
    def fits(self) -> bool:
        """Whether the stored activations fit into the budget."""
        return self.saved_bytes <= self.budget
