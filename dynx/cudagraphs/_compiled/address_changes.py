"""Detect parameters, buffers and saved tensors whose addresses change between calls, and copy them if that happens often."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from dynx._reading.user_location import location_of_call
from dynx.cudagraphs._graph.plan import with_changed_inputs
from dynx.cudagraphs._stats import count_address_change
from dynx.records.cudagraphs import AddressChange, GraphPlan

_OFTEN = 3  # changes of address, after which an input is copied in every call


@dataclass(frozen=True, slots=True)
class SharedFacts:
    """Data that all graphs of one compilation share: which results and saved tensors are in the memory of recordings."""

    saved_elsewhere: set[str] = field(default_factory=set)  # names of saved tensors whose memory is not in a recording
    addresses: set[int] = field(default_factory=set)  # of results in the memory of recordings


class AddressWatch:
    """A counter of address changes of the inputs that a recording reads in place: parameters, buffers, saved tensors."""

    def __init__(self, plan: GraphPlan, recorded: Collection[int]) -> None:
        self._plan, self._recorded = plan, recorded
        self._last: dict[int, int] = {}  # address by index of the input
        self._times: Counter[int] = Counter()

    def note(self, args: Sequence[Any]) -> GraphPlan:
        """Count new addresses among the inputs of a call; return a plan that copies inputs whose addresses change often.

        It is called before the call is recorded. FSDP gathers parameters at a new address in each step, and hooks on saved
        tensors return copies: without copying such inputs, each step would need another recording. An address in the memory
        of another recording does not count as a change.
        """
        changes: dict[int, AddressChange] = {}
        for index in self._plan.indices("static", "managed"):
            address, before = args[index].data_ptr(), self._last.get(index)
            if address in self._recorded:
                continue
            self._last[index] = address
            if before is not None and address != before:
                self._times[index] += 1
                spec = self._plan.inputs[index]
                location = spec.location or location_of_call()
                changes[index] = AddressChange(spec.name, before, address, self._times[index], location)
        often: set[int] = set()
        if any(times >= _OFTEN for times in self._times.values()):
            often = {index for index, times in self._times.items() if times > 1}  # with those that are about to reach the limit
        for index, change in changes.items():
            count_address_change(replace(change, is_copied=index in often))
        if often:
            why = "its address changes often"
            self._plan = with_changed_inputs(self._plan, often, kind="dynamic", why=why, is_fixed=False, has_known_layout=False)
            self._times.clear()
        return self._plan
