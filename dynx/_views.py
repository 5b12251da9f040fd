"""Let `dynx.records` use `dynx.report` without importing it: `dynx/__init__.py` sets `load`, which returns `dynx.report`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol


class Views(Protocol):
    """Functions that render a record for a terminal and as HTML."""

    def record(self, shown: Any, /) -> Any: ...
    def record_html(self, shown: Any, /) -> str: ...


load: Callable[[], Views]
