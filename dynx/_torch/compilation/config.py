"""Read the settings of torch's compiler that change compiled code: a fingerprint, which is a tuple of hashes, or the values.

Torch: `get_hash` of its configuration modules is cached until a value changes, and omits settings that do not change compiled
code.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

from dynx._torch.capabilities import require

_NAMES = ("torch._dynamo.config", "torch._inductor.config", "torch._functorch.config")
_READ_BY_DYNAMO = ("freezing", "triton.cudagraphs")  # inductor settings that Dynamo reads while it traces


def config_fingerprint(*, of_config: bool = True) -> Callable[[], tuple[Any, ...]]:
    """Return a fast function that returns a fingerprint: a tuple that changes when torch's compiler settings change.

    The returned function runs on every call of a compiled function, so it imports and looks up nothing. The fingerprint
    includes the backend that `torch.compiler.set_stance` forces; with `of_config=False`, it includes nothing else. Torch:
    `eval_frame._stance`.
    """
    require("stance", "config_hash", "inductor_config")
    from torch._dynamo import eval_frame

    if not of_config:
        return lambda: (_name(eval_frame._stance.backend),)
    dynamo, inductor, functorch = (module.get_hash for module in _modules())
    return lambda: (_name(eval_frame._stance.backend), dynamo(), inductor(), functorch())


def without_inductor(fingerprint: tuple[Any, ...]) -> tuple[Any, ...]:
    """Replace inductor's hash in a result of `config_fingerprint` by the inductor settings that Dynamo reads while tracing.

    Torch: these settings are the same in 2.11, 2.13 and 2.15, apart from settings for torch's logs and tests.
    """
    stance, dynamo, _, functorch = fingerprint
    settings = _modules()[1].get_config_copy()
    return stance, dynamo, tuple(settings[name] for name in _READ_BY_DYNAMO), functorch


def forced_backend() -> Any:
    """Return the backend that the current stance (`torch.compiler.set_stance`) forces; None if it forces none."""
    from torch._dynamo import eval_frame

    return eval_frame._stance.backend


def _name(backend: Any) -> Hashable:
    return backend if backend is None or type(backend) is str else id(backend)


def config_values(*, of_inductor: bool = True) -> dict[str, Any]:
    """Return the values of all settings that change compiled code, by full name.

    With `of_inductor=False`, inductor's settings are omitted, except those that Dynamo reads while it traces.
    """
    values: dict[str, Any] = {}
    for name, module in zip(_NAMES, _modules(), strict=True):
        ignored: Any = getattr(module, "_compile_ignored_keys", ())
        values |= {f"{name}.{key}": value for key, value in module.get_config_copy().items() if key not in ignored}
    if not of_inductor:
        inductor = f"{_NAMES[1]}."
        read = {f"{inductor}{name}" for name in _READ_BY_DYNAMO}
        values = {name: value for name, value in values.items() if not name.startswith(inductor) or name in read}
    return values


def _modules() -> tuple[Any, Any, Any]:
    import torch._dynamo.config
    import torch._functorch.config
    import torch._inductor.config

    return torch._dynamo.config, torch._inductor.config, torch._functorch.config
