"""Run a worker of torchrun or a similar launcher under dynx: the worker writes a run file, the launcher prints the report."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from dynx.cli.program import prepare
from dynx.cli.run import Ending, execute


def load(target: str, arguments: Sequence[str], *, is_module: bool, settings: Mapping[str, Any]) -> Callable[[], int]:
    """Load the program of a worker, a script or (`is_module`) a module, and return the function that runs it.

    `settings` are the keyword arguments of `dynx.session.Watch`; `out` is a str. Raises UsageError if there is no such program.
    """
    from dynx.session import Watch

    load_code, module = prepare(target, arguments, option="-m" if is_module else "")
    ending = Ending(Watch(**{**settings, "out": Path(settings["out"])}), report=None)
    return lambda: execute(load_code, module, ending, is_module=is_module)
