"""`dynx run script.py args…`: run a program as Python would, and say what torch.compile did."""

from __future__ import annotations

import argparse
import builtins
import importlib.util
import os
import signal
import sys
import threading
import traceback as tracebacks
import types
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import Any

from dynx.cli.progress import Progress
from dynx.errors import UsageError

DEFAULT = Path(".dynx") / "last.dynx"


def add_to(commands: Any) -> None:
    parser = commands.add_parser(
        "run",
        help="run a program and explain what torch.compile did",
        usage="dynx run [--out FILE] [--full] [-m] target [arguments of the program …]",
    )
    parser.add_argument(
        "--out", type=Path, default=DEFAULT, metavar="FILE", help=f"where the run is saved (default: {DEFAULT})"
    )
    parser.add_argument("--full", action="store_true", help="show every table, not only what needs attention")
    parser.add_argument("-m", dest="module", action="store_true", help="target is a module, as in python -m")
    parser.add_argument("target")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, metavar="…")
    parser.set_defaults(act=act)


def act(arguments: argparse.Namespace) -> int:
    """Run the program; its exit code, its output, its exceptions and tracebacks are those it has without dynx."""
    from dynx.session import Watch

    code, module = _load_module(arguments.target) if arguments.module else _load_script(arguments.target)
    saved = arguments.out.absolute()  # the program may change directory
    watch = Watch(saved, command=["dynx", "run", arguments.target, *arguments.arguments])
    sys.argv = [(module.__file__ or "") if arguments.module else arguments.target, *arguments.arguments]
    sys.modules["__main__"] = module
    pid = os.getpid()
    outcome = "finished"
    raised: BaseException | None = None
    with Progress():
        watch.__enter__()
        try:
            exec(code, module.__dict__)
            _wait_for_threads()
        except SystemExit as error:
            outcome, raised = f"exit {_exit_code(error)}", error
        except BaseException as error:  # noqa: BLE001 - shown below as Python shows it
            outcome, raised = f"raised {type(error).__name__}", error
    watch.close(outcome=outcome)
    if os.getpid() != pid:  # a forked child that ran to the end: the parent reports
        return _end(raised)
    if raised is not None and not isinstance(raised, SystemExit):
        _print_traceback(raised)
    _report(watch, saved, full=arguments.full)
    return _end(raised)


def _load_script(target: str) -> tuple[types.CodeType, types.ModuleType]:
    path = Path(target)
    if not path.is_file():
        raise UsageError(f"there is no file {target}\n  to run a module: dynx run -m {target.removesuffix('.py')}")
    file = os.path.abspath(path)  # as Python does since 3.9, also in tracebacks
    module = _main_module(file)
    module.__loader__ = SourceFileLoader("__main__", file)
    sys.path[0] = os.path.dirname(os.path.realpath(file))
    return _compile(path.read_bytes(), file), module


def _main_module(file: str | None) -> types.ModuleType:
    """Make an empty `__main__` with the globals that Python gives it."""
    module = types.ModuleType("__main__")
    vars(module).update(__file__=file, __builtins__=builtins, __cached__=None, __annotations__={})
    return module


def _compile(source: bytes, target: str) -> types.CodeType:
    try:
        return compile(source, target, "exec", dont_inherit=True)
    except SyntaxError as error:
        text = "".join(tracebacks.format_exception_only(error)).rstrip()
        raise UsageError(f"{target} is not valid Python\n{text}") from None


def _load_module(name: str) -> tuple[types.CodeType, types.ModuleType]:
    sys.path[0] = os.getcwd()
    try:
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.submodule_search_locations is not None:
            spec = importlib.util.find_spec(f"{name}.__main__")
    except (ImportError, ValueError) as error:
        raise UsageError(f"no module named {name}: {error}") from None
    loader: Any = spec.loader if spec is not None else None
    if spec is None or not hasattr(loader, "get_code"):
        raise UsageError(f"no module named {name} that can be run\n  to run a file: dynx run path/to/file.py")
    module = _main_module(spec.origin)
    vars(module).update(__spec__=spec, __package__=spec.parent, __loader__=loader, __cached__=spec.cached)
    return loader.get_code(spec.name), module


def _wait_for_threads() -> None:
    """Wait as the interpreter does at its end, so that what they compile is seen."""
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join()


def _exit_code(error: SystemExit) -> int:
    if error.code is None:
        return 0
    return error.code if isinstance(error.code, int) else 1


def _print_traceback(error: BaseException) -> None:
    """Let the program's own excepthook, or Python's, show the exception without the frames of dynx."""
    traceback = error.__traceback__
    while traceback is not None and traceback.tb_frame.f_code.co_filename == __file__:
        traceback = traceback.tb_next
    error.__traceback__ = traceback
    sys.excepthook(type(error), error, traceback)


def _report(watch: Any, saved: Path, *, full: bool) -> None:
    from rich.console import Console

    from dynx.records.location import short_path
    from dynx.report import terminal

    console = Console(stderr=True)
    try:
        sys.stdout.flush()
        console.print()
        console.print(terminal(watch.run, full=full))
        if saved.is_file():
            console.print(f" [dim]saved: dynx show {short_path(str(saved))}[/]", highlight=False)
    except BrokenPipeError:
        pass  # `dynx run … | head`: nobody reads any more


def _end(raised: BaseException | None) -> int:
    if isinstance(raised, SystemExit):
        raise raised
    if isinstance(raised, KeyboardInterrupt):
        # Python ends by the signal itself, so that a shell sees an interrupted program
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    return 0 if raised is None else 1
