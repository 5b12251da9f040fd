"""Activation memory: store the tensors that are saved for backward in fewer bytes, and report them.

Training keeps the tensors that backward needs; for large models, they take most of the memory. Under `saved.hooks`, the
compiled forward graph packs these tensors, and the backward graph unpacks them:

    with saved.hooks(saved.rule(saved.codecs.fp8(), min_numel=1024)):
        loss = compiled_model(batch)
    loss.backward()

- `saved.hooks(*rules)`: the context manager; `saved.rule(codec, ...)`: which tensors a codec packs; `saved.codecs`: the codecs.
- `saved.report(fn, *args, hooks=)`: the saved tensors; `saved.grad_error`: the error that hooks cause in the gradients;
  `saved.plan(fn, *args, budget="60%")`: rules that fit a budget.
- `saved.inlineable_hooks`: hooks with a pack and an unpack function of your own.

How it works. torch can inline saved-tensor hooks that are GraphModules: pack at the end of forward, unpack at the beginning of
backward, for tensors that `saved_tensors_hooks_filtering_mode` selects, without checks. dynx does not use this. It passes torch
a pair of hooks that represents the rules (`_published`), and edits the graphs itself (`_graphs`) after AOTAutograd
has partitioned them. Outside of graphs, the same hooks pack eagerly (`_eager`). The hooks have the same name and hash in every
process, so that AOTAutograd's cache is hit.
"""

from dynx.records.saved import PeakTensor, SavedGraph, SavedTensor
from dynx.records.saved_report import GradError, SavedPlan, SavedReport
from dynx.saved import codecs
from dynx.saved._codec import Codec
from dynx.saved._hooks import SavedHooks, hooks
from dynx.saved._measure.grad_error import grad_error
from dynx.saved._measure.plan import plan
from dynx.saved._measure.report import report
from dynx.saved._observe import SavedGraphs
from dynx.saved._own_hooks import inlineable_hooks
from dynx.saved._rules import Rule, rule

__all__ = [
    "Codec",
    "GradError",
    "PeakTensor",
    "Rule",
    "SavedGraph",
    "SavedGraphs",
    "SavedHooks",
    "SavedPlan",
    "SavedReport",
    "SavedTensor",
    "codecs",
    "grad_error",
    "hooks",
    "inlineable_hooks",
    "plan",
    "report",
    "rule",
]
