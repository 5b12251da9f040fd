"""`CudagraphMessages`: the warnings that torch's own CUDA graphs (`mode="reduce-overhead"`) log.

Torch: `cudagraph_utils.log_cudagraph_skip_and_bump_counter` and `maybe_warning_due_to_dynamic_shape` log why a graph is skipped
or recorded again, with the stack of the user's code. They do so while a function is compiled, and while it is called.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from dynx._handle import Handle

_LOGGER = "torch._inductor.cudagraph_utils.__cudagraphs"


class CudagraphMessages(logging.Handler, Handle):
    """A handle that passes each message to `report`, on the thread that logs it, until `remove()`."""

    def __init__(self, report: Callable[[str], None]) -> None:
        super().__init__(logging.WARNING)
        self._report = report
        logging.getLogger(_LOGGER).addHandler(self)

    def remove(self) -> None:
        """Stop reporting."""
        logging.getLogger(_LOGGER).removeHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        """Report a message of torch."""
        try:
            text = record.getMessage()
        except Exception:  # noqa: BLE001 - a message that cannot be rendered is still the program's to print
            return
        self._report(text)
