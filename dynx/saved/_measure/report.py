"""`report`: what a function saves for backward."""

from __future__ import annotations

from typing import Any

from dynx.records.saved_report import SavedReport
from dynx.saved._hooks import SavedHooks
from dynx.saved._measure.trial import Program


def report(fn: Any, /, *args: Any, hooks: SavedHooks | None = None, backend: Any = None, **kwargs: Any) -> SavedReport:
    """Compile a function anew, run forward and backward once, and return what it saves, tensor by tensor.

    Gradients are computed and discarded; buffers and the state of random numbers are restored. The caches on disk are not
    asked, so the report is complete whatever they contain.

    Args:
        fn: A function that returns a loss, or a module; compiled or not. A compiled one keeps its backend.
        *args: Arguments of the call.
        hooks: `saved.hooks(...)`; without, what is saved as it is.
        backend: A backend of torch.compile to use instead; for a function that is not compiled, inductor otherwise.
        **kwargs: Keyword arguments of the call.

    Returns:
        A `SavedReport`, which shows itself on a terminal and in a notebook: for each tensor its bytes and how many are stored,
        line, operator, module, what backward reads it, and why no rule applies; bytes by module and line; peaks.

    Raises:
        UsageError: `fn` is not callable, or returns nothing that requires a gradient.
        BadCodec: a codec does not give back what it was given.

    Example:
        >>> import torch
        >>> from dynx import saved
        >>> model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.GELU(), torch.nn.Linear(64, 8))
        >>> hooks = saved.hooks(saved.rule(saved.codecs.bf16()))
        >>> report = saved.report(model, torch.randn(32, 64), hooks=hooks, backend="aot_eager")
        >>> report.bytes, report.saved_bytes
        (16384, 8192)
    """
    trial = Program(fn, args, kwargs, backend).run(hooks)
    if trial.peaks is not None:
        forward, backward = trial.peaks
    else:
        forward = max((graph.forward_peak for graph in trial.graphs), default=0)
        backward = max((graph.backward_peak for graph in trial.graphs), default=0)
    rules = tuple(map(str, hooks.rules)) if hooks is not None else ()
    kind = "simulated" if trial.peaks is None else "measured"
    return SavedReport(trial.graphs, trial.eager, forward, backward, kind, rules)  # type: ignore[arg-type]
