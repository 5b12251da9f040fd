"""What is read where it lies, and is found somewhere else than before."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from dynx._trace.user_location import location_of_call
from dynx.cudagraphs._stats import count_address_change
from dynx.records.cudagraphs import AddressChange, GraphPlan

_OFTEN = 3  # moves, after which it is taken for another tensor on every call


@dataclass(frozen=True, slots=True)
class Shared:
    """What the graphs of one compilation know of each other."""

    moving: set[str] = field(default_factory=set)  # names of what the forward graph saves outside of recordings
    places: set[int] = field(default_factory=set)  # addresses of results that stay in recordings
    direct: list[Any] = field(default_factory=list)  # what goes around the wrappers of an inference graph


class Moves:
    """Where the inputs of a graph were last that are read where they lie, and how often they moved."""

    def __init__(self, plan: GraphPlan, places: Collection[int]) -> None:
        self._plan, self._places = plan, places
        self._last: dict[int, int] = {}
        self._times: Counter[int] = Counter()

    def note(self, args: Sequence[Any]) -> GraphPlan:
        """Note where inputs are that a recording is made for; gives the plan, with those as dynamic that move often.

        FSDP gathers parameters somewhere else for each step, hooks on saved tensors give copies: each step would need a
        recording. What lies in another recording is no move.
        """
        moved: dict[int, AddressChange] = {}
        for index in self._plan.indices("static", "managed"):
            address, before = args[index].data_ptr(), self._last.get(index)
            if address in self._places:
                continue
            self._last[index] = address
            if before is not None and address != before:
                self._times[index] += 1
                each = self._plan.inputs[index]
                moved[index] = AddressChange(
                    each.name, before, address, self._times[index], each.location or location_of_call()
                )
        often: set[int] = set()
        if any(times >= _OFTEN for times in self._times.values()):
            often = {index for index, times in self._times.items() if times > 1}  # those that are about to
        for index, change in moved.items():
            count_address_change(replace(change, is_copied=index in often))
        if often:
            inputs = (
                replace(each, kind="dynamic", why="moves often", is_fixed=False, is_told=False) if index in often else each
                for index, each in enumerate(self._plan.inputs)
            )
            self._plan = replace(self._plan, inputs=tuple(inputs))
            self._times.clear()
        return self._plan
