"""Read metrics of a compilation (seconds by phase, numbers of operations and guards), and global state that torch guards."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

# keys of `compilation_time_metrics`
_COMPILER = "OutputGraph.call_user_compiler"
_AOT = "create_aot_dispatcher_function"
_GUARDS = "build_guards"
_INNER = "compile_fx_inner"  # inductor's own work, inside AOTAutograd
_KERNELS = "async_compile.wait"  # inductor waits for compilers of C++ and Triton, in other processes
_AUTOTUNING = ("_template_autotuning", "_template_precompiling")  # ends of keys: inductor compiles and times variants of an op


class PhaseClock:
    """A reader of torch's own timers: the seconds that each compilation phase has taken since the clock was created."""

    __slots__ = ("_start",)

    def __init__(self) -> None:
        self._start = {key: len(times) for key, times in tuple(_times().items())}

    def phases(self, seconds: float, nested: float = 0.0) -> dict[str, float]:
        """Split the seconds of a compilation into the phases trace, aot, backend, autotuning, kernels and guards, in seconds.

        `nested` is the time of other compilations that ran within the backend, which torch's timers count twice.
        """
        guards = min(self._grown(_GUARDS), seconds)
        compiler = min(max(0.0, self._grown(_COMPILER) - nested), seconds - guards)
        aot = min(max(0.0, self._grown(_AOT) - self._grown(_INNER)), compiler)
        kernels = min(self._grown(_KERNELS), compiler - aot)
        tuned = sum(self._grown(key) for key in tuple(_times()) if key.endswith(_AUTOTUNING))
        autotuning = min(tuned, compiler - aot - kernels)
        trace, backend = seconds - compiler - guards, compiler - aot - kernels - autotuning
        of_backend = {"backend": backend, "autotuning": autotuning, "kernels": kernels}
        return {"trace": trace, "aot": aot, **of_backend, "guards": guards}

    def _grown(self, key: str) -> float:
        times = _times().get(key, ())
        start = self._start.get(key, 0)
        return sum(times[start:]) if len(times) >= start else sum(times)  # torch._dynamo.reset() emptied the list in between


def _times() -> Mapping[str, list[float]]:
    from torch._dynamo.utils import compilation_time_metrics

    return compilation_time_metrics


def sizes(compile_id: str) -> tuple[int | None, int | None]:
    """Return the numbers of graph operations and of guards of the compilation that just ended; each is None if unknown.

    Torch: the newest `CompilationMetrics`; a compilation nested in another compilation has none.
    """
    import torch._dynamo.utils as utils

    newest = utils._compilation_metrics[-1] if utils._compilation_metrics else None
    if getattr(newest, "compile_id", None) != compile_id:
        return None, None
    return getattr(newest, "graph_op_count", None), getattr(newest, "guard_count", None)


# order of at::autocast's list of devices, by which torch's lists are indexed; torch reports "autocast(cpu)_enabled"
_AUTOCAST_DEVICES = ("cpu", "cuda", "mtia", "maia", "xpu", "ipu", "hpu", "xla", "privateuseone", "mps")


def global_state() -> dict[str, str]:
    """Return the values of the global state that torch guards, by the names that torch uses when it reports a change."""
    from torch._C._dynamo.guards import GlobalStateGuard

    raw: dict[str, Any] = json.loads(str(GlobalStateGuard().__getstate__()))
    autocast = raw.pop("autocast_state", {})
    state = {name: _word(name, value) for name, value in raw.items()}
    for field in ("enabled", "dtype"):
        for device, value in zip(_AUTOCAST_DEVICES, autocast.get(field, ()), strict=False):
            state[f"autocast({device})_{field}"] = _word("default_dtype" if field == "dtype" else field, value)
    if "cached_enabled" in autocast:
        state["autocast_cache_enabled"] = str(autocast["cached_enabled"])
    return state | _python_state()


def _python_state() -> dict[str, str]:
    """Return the guarded state that `GlobalStateGuard` lacks: modes, transforms, default device, saved-tensor hooks."""
    from torch import _C
    from torch._functorch.pyfunctorch import retrieve_all_functorch_interpreters
    from torch.autograd import forward_ad
    from torch.utils import _device

    modes = [_C._get_function_stack_at(i) for i in range(_C._len_torch_function_stack())]
    texts = [f"{type(mode).__name__}({mode.device})" if hasattr(mode, "device") else type(mode).__name__ for mode in modes]
    levels = [" ".join(map(str, level.get_state())) for level in retrieve_all_functorch_interpreters()]
    return {
        "torch_function_mode_stack": ", ".join(texts) or "empty",
        "default_device": str(_device.CURRENT_DEVICE),
        "functorch_stack": ", ".join(levels) or "empty",
        "forward_ad_level": str(forward_ad._current_level),
        "saved_tensors_hooks": _saved_tensors_hooks(),
    }


def _saved_tensors_hooks() -> str:
    """Return the class names of the saved-tensor hooks if all are `GraphModule`s, else "none": Dynamo guards no other hooks."""
    from torch._C import _autograd
    from torch.fx import GraphModule

    hooks = _autograd._top_saved_tensors_default_hooks(True)  # noqa: FBT003 - a function in C, without keywords
    if not hooks or not all(isinstance(hook, GraphModule) for hook in hooks):
        return "none"
    return " and ".join(type(hook).__name__ for hook in hooks)


# c10::ScalarType numbers that can be a default or autocast dtype
_DTYPES = {5: "float16", 6: "float32", 7: "float64", 15: "bfloat16"}


def _word(name: str, value: object) -> str:
    return _DTYPES.get(value, str(value)) if name == "default_dtype" and isinstance(value, int) else str(value)


def seconds_of(compile_id: str) -> float | None:
    """Return the wall time of a compilation in seconds; None if torch has no metrics of it (torch keeps the last 64)."""
    import torch._dynamo.utils as utils

    newest_first = reversed(utils._compilation_metrics)
    found = next((metrics for metrics in newest_first if getattr(metrics, "compile_id", None) == compile_id), None)
    seconds = getattr(found, "entire_frame_compile_time_s", None)
    return None if seconds is None else float(seconds)
