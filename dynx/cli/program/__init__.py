"""Load the user's program into this process as `python script.py`, `python -m module`, `python -c code` or `python -` do."""

from __future__ import annotations

import builtins
import contextlib
import importlib.util
import linecache
import os
import pkgutil
import re
import shlex
import sys
import types
import zipimport
from collections.abc import Callable, Sequence
from importlib.machinery import BuiltinImporter, SourceFileLoader, SourcelessFileLoader
from pathlib import Path
from typing import Any

from dynx._bytecode.source import add_program
from dynx.cli.arguments import Parser
from dynx.cli.program.tracebacks import hide_our_frames
from dynx.errors import UsageError

_MISSING = {"": "no program to run", "-m": "-m without the name of a module", "-c": "-c without code"}
_ENCODING = re.compile(rb"^[ \t\f]*#.*?coding[:=][ \t]*[-\w.]+")  # of PEP 263
_SHOWN = 60  # characters of the code of `-c` that are shown


def add_to(parser: Parser, *, before: int = 0) -> None:
    """Add the arguments that name a program as `python` does: a script, `-` for standard input, `-m module` or `-c code`.

    `before` is the number of positional arguments before the program.
    """
    parser.before_program = before
    kind = parser.add_mutually_exclusive_group()
    for option in ("-m", "-c"):
        kind.add_argument(
            option, dest="option", action="store_const", const=option, default="", help=f"run the program as `python {option}`"
        )
    parser.add_argument("target", metavar="program", nargs="?", help="a script, a folder, or - for a program on standard input")


def prepare(
    target: str | None, rest: Sequence[str], *, option: str = "", usage: str = ""
) -> tuple[Callable[[], types.CodeType], types.ModuleType]:
    """Set `sys.argv` for a program; return two things: a function that loads its code, and an empty `__main__` module for it.

    `target` is a script, a module, code, or `-` for standard input; None if the command line has none. `rest` are its
    arguments; `option` is `-m`, `-c` or empty. Raises UsageError if the program is missing; the error may show `usage`.
    """
    if target is None:
        example = usage or "dynx run train.py, dynx run -m package, or dynx run -c 'import model; model.main()'"
        raise UsageError(f"the command line is incomplete: {_MISSING[option]}\n  for example: {example}")
    sys.argv = [option or target, *rest]
    if option == "-c":
        return load_code(target)
    if option == "-m":
        return load_module(target)
    return load_stdin() if target == "-" else load_script(target, usage)


def loaded(load: Callable[[], types.CodeType]) -> types.CodeType:
    """Return `load()`, the code of a program; an error in it, such as a SyntaxError, has a traceback without frames of dynx."""
    try:
        return load()
    except BaseException:
        hide_our_frames()
        raise


def shortened(code: str) -> str:
    """Return the first line of code, quoted as in a shell, for a title."""
    first = next((line.strip() for line in code.splitlines() if line.strip()), "")
    return shlex.quote(first if first == code and len(first) <= _SHOWN else f"{first[:_SHOWN]}…")


def load_script(target: str, usage: str = "") -> tuple[Callable[[], types.CodeType], types.ModuleType]:
    """Return a function that loads the code of a file, and an empty `__main__` module for it.

    `target` is the path of a file (also compiled), pipe, or zip archive or folder with a `__main__.py`. Raises UsageError if
    the path or its `__main__.py` is missing. For a missing path, the error shows `usage` or, by default, how to run a module.
    """
    path = Path(target)
    if not path.exists():
        module_run = f"to run a module: dynx run -m {target.removesuffix('.py')}"
        raise UsageError(f"the file {target} does not exist\n  {f'usage: {usage}' if usage else module_run}")
    if path.is_file() and isinstance(importer := pkgutil.get_importer(os.path.abspath(path)), zipimport.zipimporter):
        return _load_archive(importer, path)
    folder = path if path.is_dir() else None
    if folder is not None:
        path = folder / "__main__.py"  # as Python does for a folder
        if not path.is_file():
            raise UsageError(f"the folder {target} has no __main__.py\n  name a file in it")
    file = os.path.abspath(path)  # as Python does since 3.9, also in tracebacks
    is_compiled = path.suffix == ".pyc"
    loader = SourcelessFileLoader("__main__", file) if is_compiled else SourceFileLoader("__main__", file)
    module = _main_module(file, __loader__=loader)
    if not sys.flags.safe_path:
        sys.path[0] = str(folder) if folder is not None else _folder_of(target)
    if is_compiled:
        return lambda: _compiled_code(loader), module
    source = path.read_bytes()
    return lambda: compile_file(source, file), module


def _load_archive(importer: zipimport.zipimporter, path: Path) -> tuple[Callable[[], types.CodeType], types.ModuleType]:
    """Return a function that loads the `__main__` module of a zip archive, and an empty module for it."""
    spec = importer.find_spec("__main__")
    if spec is None:
        raise UsageError(f"the archive {path} has no __main__.py\n  name another file")
    module = _main_module(spec.origin, __spec__=spec, __package__="", __loader__=importer, __cached__=spec.cached)
    if not sys.flags.safe_path:
        sys.path[0] = os.path.abspath(path)
    return lambda: importer.get_code("__main__"), module


def _compiled_code(loader: Any) -> types.CodeType:
    try:
        return loader.get_code("__main__")
    except (ImportError, EOFError):
        raise RuntimeError("Bad magic number in .pyc file") from None  # as Python says


def _folder_of(target: str) -> str:
    """Return the folder that Python adds to `sys.path` for a script; symbolic links to the script are followed."""
    path = os.path.abspath(target)
    with contextlib.suppress(OSError):
        link = os.readlink(path)
        if os.path.dirname(link):
            path = os.path.join(os.path.dirname(path), link)
    with contextlib.suppress(OSError):
        path = os.path.realpath(path, strict=True)
    return os.path.dirname(path)


def compile_file(source: bytes, file: str) -> types.CodeType:
    """Compile a source file; raise the same SyntaxError as Python for bytes that are not source code."""
    number = source.count(b"\n", 0, source.find(b"\0")) + 1
    if b"\0" in source:
        line = source.splitlines()[number - 1].partition(b"\0")[0].decode(errors="replace")
        raise SyntaxError("source code cannot contain null bytes", (file, number, None, line))
    try:
        source.decode()
    except UnicodeDecodeError as error:
        if not any(map(_ENCODING.match, source.splitlines()[:2])):
            line_number, byte = source.count(b"\n", 0, error.start) + 1, source[error.start]
            raise SyntaxError(
                f"Non-UTF-8 code starting with '\\x{byte:02x}' in file {file} on line {line_number}, "
                "but no encoding declared; see https://peps.python.org/pep-0263/ for details"
            ) from None
    try:
        return compile(source, file, "exec", dont_inherit=True)
    except SyntaxError as error:
        if (error.msg or "").startswith("unknown encoding: "):
            raise SyntaxError(error.msg.replace("unknown encoding", "encoding problem")) from None  # as Python says
        raise


def _main_module(file: str | None, **more: Any) -> types.ModuleType:
    """Create an empty `__main__` module with the globals that Python sets for a program, and `more` globals."""
    module = types.ModuleType("__main__")
    vars(module).update({"__file__": file, "__builtins__": builtins, "__cached__": None, "__annotations__": {}, **more})
    return module


def load_code(source: str) -> tuple[Callable[[], types.CodeType], types.ModuleType]:
    """Return a function that compiles `source`, and an empty `__main__` module for it, as `python -c` does."""
    source += "\n"  # as Python does
    module = types.ModuleType("__main__")
    vars(module).update(__builtins__=builtins, __annotations__={}, __loader__=BuiltinImporter)

    def load() -> types.CodeType:
        code = compile(source, "<string>", "exec", dont_inherit=True)
        add_program(code, source)
        _show_in_tracebacks(code, source)
        return code

    if not sys.flags.safe_path:
        sys.path[0] = ""
    return load, module


def load_stdin() -> tuple[Callable[[], types.CodeType], types.ModuleType]:
    """Read standard input; return a function that compiles it, and an empty `__main__` module for it, as `python -` does."""
    source = sys.stdin.buffer.read() if sys.stdin is not None else b""
    module = _main_module("<stdin>", __loader__=BuiltinImporter)

    def load() -> types.CodeType:
        code = compile(source, "<stdin>", "exec", dont_inherit=True)
        add_program(code, importlib.util.decode_source(source))
        return code

    if not sys.flags.safe_path:
        sys.path[0] = ""
    return load, module


def _show_in_tracebacks(code: types.CodeType, source: str) -> None:
    """Add the source of a `-c` program to `linecache`, as Python does since 3.13, so that tracebacks show source lines."""
    register: Any = getattr(linecache, "_register_code", None)
    if register is not None:
        # Python 3.13.0 finds the lines by file name, later versions by code object
        register(code if hasattr(linecache, "_interactive_cache") else code.co_filename, source, code.co_filename)


def load_module(name: str) -> tuple[Callable[[], types.CodeType], types.ModuleType]:
    """Return a function that loads the code object of a module, and an empty `__main__` module for it, as `python -m` does.

    Raises UsageError if there is no such module, or if it has no code.
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
    module = _main_module(spec.origin, __spec__=spec, __package__=spec.parent, __loader__=loader, __cached__=spec.cached)
    return lambda: loader.get_code(spec.name), module
