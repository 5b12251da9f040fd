"""The functions of torch that show how a program uses torch.compile, also where nothing is compiled."""

from __future__ import annotations

from dynx._torch.hooks import HookPoint

USES: tuple[HookPoint, ...] = (
    HookPoint(
        "prepared",
        "torch._dynamo.eval_frame:_optimize",
        ("rebuild_ctx", "backend"),
        ("disable",),
        purpose="why nothing was compiled: what torch.compile prepares",
    ),
    HookPoint(
        "backend_lookup",
        "torch._dynamo.backends.registry:lookup_backend",
        purpose="why nothing was compiled: backends that cannot be loaded",
    ),
    HookPoint(
        "compiled_call",
        "torch._dynamo.eval_frame:_callback_from_stance",
        ("callback",),
        purpose="why nothing was compiled: the first call of a compiled function",
    ),
)
