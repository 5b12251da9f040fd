"""Load the user's program into this process in the same way as `python script.py` or `python -m module`."""

from __future__ import annotations

import builtins
import importlib.util
import os
import sys
import types
from collections.abc import Callable
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import Any

from dynx.errors import UsageError

Hook = Callable[[type[BaseException], BaseException, types.TracebackType | None], Any]

_COMMANDS = str(Path(__file__).parent)
_PACKAGE = Path(__file__).parent.parent
_HOOKS = (str(_PACKAGE / "_torch" / "hooks.py"), str(_PACKAGE / "_child_processes.py"))


def without_our_frames(hook: Hook) -> Hook:
    """Wrap the excepthook `hook` so that it gets the traceback without the frames of dynx."""

    def show(kind: type[BaseException], error: BaseException, traceback: types.TracebackType | None) -> None:
        first = traceback
        while first is not None and not _is_ours(first):
            first = first.tb_next
        while first is not None and _is_ours(first):
            first = first.tb_next
        error.__traceback__ = _without_hooks(first)
        hook(kind, error, error.__traceback__)

    return show


def _is_ours(traceback: types.TracebackType) -> bool:
    return os.path.dirname(traceback.tb_frame.f_code.co_filename) == _COMMANDS


def _without_hooks(traceback: types.TracebackType | None) -> types.TracebackType | None:
    """Remove the frames of wrappers with which dynx replaces functions of torch and `subprocess.Popen`."""
    if traceback is None:
        return None
    rest = _without_hooks(traceback.tb_next)
    if traceback.tb_frame.f_code.co_filename in _HOOKS:
        return rest
    traceback.tb_next = rest
    return traceback


def load_script(target: str, usage: str = "") -> tuple[Callable[[], types.CodeType], types.ModuleType]:
    """Return a function that compiles a file, and an empty `__main__` module for it.

    Args:
        target: The path of a file, or of a folder with a `__main__.py`.
        usage: The command line to suggest if there is no such file; by default the one that runs a module.

    Raises:
        UsageError: There is no such file.
    """
    path = Path(target)
    folder = path if path.is_dir() else None
    if folder is not None:
        path = folder / "__main__.py"  # as Python does for a folder
    if not path.is_file():
        module_run = f"to run a module: dynx run -m {target.removesuffix('.py')}"
        raise UsageError(f"the file {target} does not exist\n  {f'usage: {usage}' if usage else module_run}")
    file = os.path.abspath(path)  # as Python does since 3.9, also in tracebacks
    module = _main_module(file)
    module.__loader__ = SourceFileLoader("__main__", file)
    if not sys.flags.safe_path:
        sys.path[0] = str(folder) if folder is not None else os.path.dirname(os.path.realpath(file))
    source = path.read_bytes()
    return lambda: compile(source, file, "exec", dont_inherit=True), module


def _main_module(file: str | None) -> types.ModuleType:
    """Create an empty `__main__` module with the same globals that Python sets."""
    module = types.ModuleType("__main__")
    vars(module).update(__file__=file, __builtins__=builtins, __cached__=None, __annotations__={})
    return module


def load_module(name: str) -> tuple[Callable[[], types.CodeType], types.ModuleType]:
    """Return a function that loads the code object of a module, and an empty `__main__` module for it, as `python -m` does.

    Raises:
        UsageError: There is no such module, or it has no code.
    """
    if not sys.flags.safe_path:
        sys.path[0] = os.getcwd()
    try:
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.submodule_search_locations is not None:
            spec = importlib.util.find_spec(f"{name}.__main__")
    except (ImportError, ValueError) as error:
        raise UsageError(f"no module named {name}: {error}\n  to run a file: dynx run path/to/file.py") from None
    loader: Any = spec.loader if spec is not None else None
    if spec is None or not hasattr(loader, "get_code"):
        raise UsageError(f"no module named {name} that can be run\n  to run a file: dynx run path/to/file.py")
    module = _main_module(spec.origin)
    vars(module).update(__spec__=spec, __package__=spec.parent, __loader__=loader, __cached__=spec.cached)
    return lambda: loader.get_code(spec.name), module
