"""Tools on top of torch.compile: observe compilations, inspect guards, run code at trace time, and capture CUDA graphs.

- `dynx.watch` records what torch.compile does: compilations, recompiles, graph breaks, and advice on how to avoid them.
- `dynx.compile` is torch.compile with separate cache entries for each configuration and each backend; two backends with
  equal code and options count as the same backend.
- `dynx.would_recompile` checks whether a call would recompile, without compiling or running the function.
- `dynx.check` compares results and side effects of a compiled function with those of eager code.
- `dynx.doctor` checks that the installed torch has everything that dynx needs.

- `dynx.comptime` runs code while Dynamo traces a line: `@dynx.comptime`, `dynx.comptime(fn)`, `dynx.comptime.probe`.
- `dynx.guards`: torch's cache of compiled code, and its guards. `dynx.pgo`: profiles that store which sizes are dynamic.
  `dynx.symbols`: names of symbolic sizes (`s77`) that are the same in every process.
- `dynx.effects`: side effects of a call. `dynx.saved`: memory of tensors saved for backward. `dynx.cudagraphs`: CUDA graphs.
- `dynx.fix`: run a program again with advice applied, to see what helps.
- `dynx.records`: the objects that functions of dynx return.
  `dynx.errors`: the exceptions that they raise.

All other modules are private.

`import dynx` does not import torch: a function or package is imported when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from dynx import _views
from dynx._version import __version__

if TYPE_CHECKING:
    from dynx import autograd, comptime, cudagraphs, effects, errors, fix, guards, pgo, records, saved, symbols
    from dynx._doctor.doctor import doctor
    from dynx._run import Run
    from dynx.effects import check
    from dynx.guards import compile, would_recompile
    from dynx.session import watch

__all__ = [
    "Run",
    "__version__",
    "autograd",
    "check",
    "compile",
    "comptime",
    "cudagraphs",
    "doctor",
    "effects",
    "errors",
    "fix",
    "guards",
    "pgo",
    "records",
    "saved",
    "symbols",
    "watch",
    "would_recompile",
]

_MODULES = {  # of the names that are no packages
    "Run": "dynx._run",
    "check": "dynx.effects",
    "compile": "dynx.guards",
    "doctor": "dynx._doctor.doctor",
    "watch": "dynx.session",
    "would_recompile": "dynx.guards",
}
_views.load = lambda: import_module("dynx.report")


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'dynx' has no attribute {name!r}")
    if name not in _MODULES:
        return import_module(f"dynx.{name}")
    value = globals()[name] = getattr(import_module(_MODULES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
