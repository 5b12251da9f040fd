"""The hook points of `dynx.saved`, part of the table in `capabilities.py`."""

from __future__ import annotations

from dynx._torch.hooks import HookPoint

SAVED_HOOK_POINTS = (
    HookPoint(
        "inline_hooks",
        "torch._functorch._aot_autograd.graph_compile:maybe_inline_graph_saved_tensors_hooks",
        ("fw_module", "bw_module", "num_inner_fwd_outputs", "inner_meta", "aot_config", "static_input_indices"),
        purpose="dynx.saved: the tensors that graphs save for backward",
    ),
    HookPoint(
        "visible_hooks",
        "torch._C._autograd:_top_saved_tensors_default_hooks",
        purpose="dynx.saved: no further graph under torch.no_grad",
    ),
    HookPoint(
        "disable_saved_hooks",
        "torch._dynamo.variables.ctx_manager:DisabledSavedTensorsHooksVariable._call_func",
        ("self", "tx", "values"),
        purpose="dynx.saved: refuse torch.func.grad in compiled functions",
    ),
)
