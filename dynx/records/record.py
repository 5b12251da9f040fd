"""`Record`: the base class of all records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

IN_PROCESS: Mapping[str, bool] = MappingProxyType({"in_process": True})  # metadata of a field that is not saved


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """Plain, frozen data that outlives the program objects it describes.

    `extra` keeps fields that a newer dynx wrote to a file and that this version does not know, so that saving the record again
    loses nothing.
    """

    extra: Mapping[str, object] = field(default_factory=dict, repr=False, compare=False)
