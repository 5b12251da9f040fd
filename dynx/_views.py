"""Let `dynx.records` use `dynx.report` without importing it: `dynx/__init__.py` assigns `load`, which returns the module."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol


class Views(Protocol):
    """Functions that render a record for a terminal and as HTML."""

    def record(self, shown: Any, /) -> Any: ...
    def record_html(self, shown: Any, /) -> str: ...


load: Callable[[], Views]
