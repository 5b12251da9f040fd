"""See, prove and fix what torch.compile does with your code.

`import dynx` is cheap: torch is imported when a verb that needs it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dynx._doctor.doctor import doctor
    from dynx.guards import compile, would_recompile
    from dynx.records import Run
    from dynx.session import watch

__version__ = "0.1.0"
__all__ = ["Run", "__version__", "compile", "doctor", "watch", "would_recompile"]

_HOMES = {
    "Run": "dynx.records",
    "compile": "dynx.guards",
    "doctor": "dynx._doctor.doctor",
    "watch": "dynx.session",
    "would_recompile": "dynx.guards",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'dynx' has no attribute {name!r}")
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
