"""`Shown`: the base class of records that render themselves on a terminal and in a notebook."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from dynx import _views
from dynx.records.codec import to_data
from dynx.records.record import Record


@dataclass(frozen=True, slots=True)
class Shown(Record):
    """A record that a function of dynx returns to the user; it renders itself on a terminal and in a notebook."""

    def to_json(self) -> str:
        """Return the record as a JSON document."""
        return json.dumps(to_data(self), indent=1)

    def __rich__(self) -> Any:
        return _views.load().record(self)

    def _repr_html_(self) -> str:
        return _views.load().record_html(self)
