"""`load`, which returns `dynx.report` to the records; set by `dynx`, since the records cannot import what imports them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol


class Views(Protocol):
    """Functions that render a record for a terminal and as HTML."""

    def record(self, shown: Any, /) -> Any: ...
    def record_html(self, shown: Any, /) -> str: ...


load: Callable[[], Views]
