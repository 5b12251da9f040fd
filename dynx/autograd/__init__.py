"""Compiled autograd: capture backward passes as graphs, see why one is captured again, and check the order of its hooks.

torch can capture a whole backward pass, with the hooks and the code of custom Functions, as one graph. It does not say why it
captures again, or what the graph consists of:

    with dynx.autograd.capture(backend="aot_eager") as log:
        for batch in batches:
            loss(model(batch)).backward()
    for capture in log:
        print(capture.reasons[0])  # "PowBackward0 (NodeCall 2): exponent 2, then 3 at model.py:9 in forward"

- `autograd.capture(backend=, fullgraph=, dynamic=, lines=)`: enable compiled autograd; its log has a record for each capture.
- `autograd.check_order(graph)`: hooks and gradients of a captured graph that do not run when eager autograd would run them.
"""

from dynx.autograd._capture import CaptureLog, capture
from dynx.autograd._order import check_order
from dynx.records.backward import (
    BackwardCapture,
    BackwardHook,
    BackwardNode,
    CaptureReport,
    CaptureVerdict,
    OrderError,
    RecaptureReason,
)

__all__ = [
    "BackwardCapture",
    "BackwardHook",
    "BackwardNode",
    "CaptureLog",
    "CaptureReport",
    "CaptureVerdict",
    "OrderError",
    "RecaptureReason",
    "capture",
    "check_order",
]
