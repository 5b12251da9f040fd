"""`report`: list the tensors that a function saves for backward."""

from __future__ import annotations

from typing import Any

from dynx.records.saved_report import SavedReport
from dynx.saved._hooks import SavedHooks
from dynx.saved._measure.trial import Program, simulated_peaks


def report(fn: Any, /, *args: Any, hooks: SavedHooks | None = None, backend: Any = None, **kwargs: Any) -> SavedReport:
    """Compile a function again, run forward and backward once, and return a report of the tensors that it saves.

    Gradients are computed and discarded; buffers and RNG states are restored. AOTAutograd's cache on disk is not used, so the
    report is complete.

    Args:
        fn: A function that returns a loss, or a module; compiled or not.
        *args: Arguments of the call.
        hooks: Hooks from `saved.hooks(...)`. Default: the tensors are not packed.
        backend: A backend of torch.compile. Default: the backend of `fn`, or inductor if `fn` is not compiled.
        **kwargs: Keyword arguments of the call.

    Returns:
        A `SavedReport`, which a terminal and a notebook can show. It has, for each tensor, bytes, stored bytes, line, operator,
        module, the operators of backward that read it, and why no rule applies; bytes by module and line; and peak memory.

    Raises:
        UsageError: `fn` is not callable, or returns nothing that requires a gradient.
        BadCodec: A codec does not restore the shape, dtype or device.

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
    forward, backward = trial.peaks if trial.peaks is not None else simulated_peaks(trial.graphs)
    rules = tuple(map(str, hooks.rules)) if hooks is not None else ()
    kind = "simulated" if trial.peaks is None else "measured"
    return SavedReport(trial.graphs, trial.eager, forward, backward, kind, rules)  # type: ignore[arg-type]
