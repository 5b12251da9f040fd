"""Parse and import the function that the command line names: `file.py::function` or `module:function`."""

from __future__ import annotations

import importlib.util
import os
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from dynx.errors import UsageError

FORMS = "file.py::function or module:function"


class Target(NamedTuple):
    """A function of a file or of a module."""

    program: str  # a path, `-` for standard input, or the name of a module
    function: str
    is_module: bool

    def __str__(self) -> str:
        return f"{self.program}{':' if self.is_module else '::'}{self.function}"


def parse(text: str, command: str) -> Target:
    """Parse `file.py::function` or `module:function`; for another text, raise UsageError with an example for `command`."""
    file, colons, function = text.rpartition("::")
    if colons and file and function:
        if not os.path.exists(file) and _is_module_name(file) and not file.endswith(".py"):
            raise UsageError(f"there is no file {file}\n  name {FORMS}; as a module, for example: {command} {file}:{function}")
        return Target(file, function, is_module=False)
    module, colon, function = text.partition(":")
    if colon and function and not colons and _is_module_name(module) and not module.endswith(".py"):
        return Target(module, function, is_module=True)
    name, wanted = text.rstrip(":").partition(":")[0] or "train.py", function.strip(":") or "function"
    is_module = not name.endswith(".py") and not os.path.exists(name) and _is_module_name(name)
    example = f"{name}{':' if is_module else '::'}{wanted}"
    raise UsageError(f"the target {text} is not of the form {FORMS}\n  for example: {command} {example}")


def _is_module_name(text: str) -> bool:
    return all(part.isidentifier() for part in text.split("."))


def load(target: Target, command: str) -> tuple[ModuleType, Any]:
    """Import the module of a target, without running it as a program; return the module and the function.

    A file is imported under the name that other modules use for it: `package.steps` in a package, else `steps`. Raises
    UsageError if there is no such file, module or function.
    """
    module = _imported(target.program, command) if target.is_module else _imported_file(target.program, command)
    return module, attribute(module, target.function, target.program)


def attribute(module: ModuleType, path: str, name: str) -> Any:
    """Return the object at a dotted path in the module `name`; raise UsageError if there is none."""
    value: Any = module
    for part in path.split("."):
        try:
            value = getattr(value, part)
        except AttributeError:
            raise UsageError(f"{name} has no {path}\n  name a function or nn.Module in it, as {FORMS}") from None
    return value


def _imported(name: str, command: str) -> ModuleType:
    _search_in(os.getcwd())
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not (name == error.name or name.startswith(f"{error.name}.")):
            raise
        raise UsageError(
            f"there is no module {name} in the current folder or among the installed ones\n"
            f"  run the command in the folder of the module, or name its file: {command} path/to/file.py::function"
        ) from None


def _imported_file(text: str, command: str) -> ModuleType:
    path = Path(text).absolute()
    if not path.is_file() or path.suffix != ".py":
        raise UsageError(f"there is no Python file {text}\n  name {FORMS}, for example: {command} path/to/file.py::function")
    names = [] if path.stem == "__init__" else [path.stem]
    folder = path.parent
    while (folder / "__init__.py").is_file():
        names.insert(0, folder.name)
        folder = folder.parent
    name = ".".join(names)
    is_importable = _is_module_name(name) and name not in sys.stdlib_module_names
    _search_in(str(folder), first=is_importable)
    if is_importable and _origin(name) == os.path.realpath(path):
        return import_module(name)
    return _imported_as(path.stem.replace(".", "_") + "_of_dynx", path)


def _origin(name: str) -> str:
    """Return the file from which a module is or would be imported; empty if unknown."""
    loaded = sys.modules.get(name)
    if loaded is not None:
        return os.path.realpath(getattr(loaded, "__file__", None) or "")
    spec = importlib.util.find_spec(name)
    return os.path.realpath(spec.origin) if spec is not None and spec.origin is not None else ""


def _imported_as(name: str, path: Path) -> ModuleType:
    """Import a file as module `name`, because its own name belongs to a module (`random.py`) or is no identifier (`3.py`)."""
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _search_in(folder: str, *, first: bool = True) -> None:
    if folder not in sys.path:
        sys.path.insert(0 if first else len(sys.path), folder)
