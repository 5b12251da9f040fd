"""Apply a plan in the process that runs the program, and save the global variables that are compared with another run.

A plan has the changes with which the program is run: fixes, and new texts of source files (see `_plan.py`).
"""

from __future__ import annotations

import linecache
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from dynx.fix._experiments import apply
from dynx.fix._plan import Plan, values_file


class PlanInUse(AbstractContextManager["PlanInUse"]):
    """Context manager in which the program runs with a plan: changes to try, such as fixes and new texts of source files.

    At its end, it saves the global variables in `plan.values` to a file, to compare them with those of another run.
    `path` is the JSON file with the plan, and `module` the `__main__` module of the program. The attribute `load` returns the
    code of the main file: compiled from the changed text if the plan has one, else by the argument `load`.
    """

    def __init__(self, path: Path, module: ModuleType, load: Callable[[], CodeType]) -> None:
        self._plan, self._path, self._module = Plan.read(path), path, module
        file = getattr(module, "__file__", None)
        text = self._plan.sources.get(file) if file is not None else None
        self.load = load if text is None else partial(compile, text, file, "exec", dont_inherit=True)

    def __enter__(self) -> PlanInUse:
        self._applied = apply(self._plan.fixes)
        if self._plan.sources:
            read_instead(self._plan.sources)
        return self

    def __exit__(self, *raised: object) -> None:
        self._applied.close()
        if self._plan.values:
            _save(self._plan, self._module, values_file(self._path))


def read_instead(sources: Any) -> None:
    """Make later imports of the files in `sources`, a dict from path to text, use these texts; no bytecode is cached."""
    original = SourceFileLoader.get_code

    def get_code(self: SourceFileLoader, fullname: str) -> CodeType | None:
        path = self.get_filename(fullname)
        return self.source_to_code(sources[path], path) if path in sources else original(self, fullname)

    SourceFileLoader.get_code = get_code  # type: ignore[method-assign,assignment]
    for path, text in sources.items():
        linecache.cache[path] = (len(text), None, text.splitlines(keepends=True), path)


def _save(plan: Plan, module: ModuleType, path: Path) -> None:
    import torch

    found = {name: vars(module)[name] for name in plan.values if name in vars(module)}
    try:
        torch.save(found, path)
    except Exception as error:  # noqa: BLE001 - whatever a value of the user raises when it is pickled
        path.with_suffix(".error").write_text(f"{type(error).__name__}: {error}")
