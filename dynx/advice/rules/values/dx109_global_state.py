"""Rule DX109: recompiles because global torch state, such as the default dtype, differs between calls."""

from __future__ import annotations

from dynx.advice.facts.reasons import has_kind
from dynx.advice.rule import RecompileRule, one_of

_SETTERS = {
    "num_threads": "call torch.set_num_threads()",
    "default_dtype": "call torch.set_default_dtype()",
    "default_device": "call torch.set_default_device()",
    "deterministic_algorithms": "call torch.use_deterministic_algorithms()",
    "allow_tf32": "set torch.backends.cuda.matmul.allow_tf32",
    "autocast": "enter torch.autocast the same way for every call: set it",
    "torch_function": "enter the TorchFunctionMode the same way for every call: set it",
    "saved_tensors_hooks": "enter saved_tensors_hooks the same way for every call: set them",
}


def _setter(state: str) -> str:
    """Return how to set a field of torch's global state, such as "call torch.set_num_threads()"; "set it" if unknown."""
    return next((call for field, call in _SETTERS.items() if field in state), "set it")


RULE = RecompileRule(
    id="DX109",
    title="global torch state differs between calls",
    applies=has_kind("global_state"),
    advice=lambda cause: one_of(f"{_setter(cause.first.source)} once, before the first call, and leave it"),
)
