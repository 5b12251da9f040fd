"""Add a fix to a plan, the changes with which a program is run: without changing a file, or as new texts of source files."""

from __future__ import annotations

import importlib.util
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from dynx.errors import DynxWarning, UsageError
from dynx.fix._plan import Plan
from dynx.fix._program import Program
from dynx.records import Finding
from dynx.records.fix import Fix

Propose = Callable[[Plan, Finding, Fix], Iterator[Plan]]


def experiments(plan: Plan, finding: Finding, fix: Fix) -> Iterator[Plan]:
    """Yield `plan` with `fix` added, to be applied when the program starts; yield nothing if the fix has to change a file."""
    if fix.kind != "rewrite":
        yield replace(plan, fixes=(*plan.fixes, fix))


def rewritten(program: Program) -> Propose:
    """Return a function that yields a plan (with new source texts) for each way to write a fix into the files of a program.

    For a program without a file, such as `-c` code, return `experiments`, whose plans change no file. Raises UsageError if
    libcst, which `pip install 'dynx[fix]'` installs, is missing.
    """
    if importlib.util.find_spec("libcst") is None:
        raise UsageError("dynx fix needs libcst, which changes files and keeps their formatting\n  pip install 'dynx[fix]'")
    main = main_file(program)
    if main is None:
        return experiments

    def propose(plan: Plan, finding: Finding, fix: Fix) -> Iterator[Plan]:
        from dynx._rewrites import Files, ways

        try:
            for changed in ways(Files(plan.sources, main), finding, fix):
                yield replace(plan, sources={**plan.sources, **changed})
        except Exception as error:  # noqa: BLE001 - one rewrite that fails must not lose the others
            text = f"dynx could not write {fix.code} at {finding.location.own}: {type(error).__name__}: {error}"
            warnings.warn(text, DynxWarning, stacklevel=2)

    return propose


def main_file(program: Program) -> str | None:
    """Return the absolute path of the main file of a program; None for code of `-c`."""
    if program.option == "-c":
        return None
    if program.option == "-m":
        sys.path.insert(0, "")
        try:
            spec = importlib.util.find_spec(program.target)
            if spec is not None and spec.submodule_search_locations is not None:
                spec = importlib.util.find_spec(f"{program.target}.__main__")
        except (ImportError, ValueError):
            spec = None
        finally:
            del sys.path[0]
        return spec.origin if spec is not None else None
    path = Path(program.target).absolute()
    return str(path / "__main__.py" if path.is_dir() else path)
