"""Extend `dynx.watch(out=...)` to child processes: each writes a run file of its own next to that of the parent process.

- A forked child process inherits its parent's watch.
- A child that multiprocessing spawns (`torch.multiprocessing.spawn`, a `DataLoader`) is a new interpreter. It unpickles a dict
  with the main module, `sys.path` and arguments of its parent. dynx adds an object to this dict. Unpickling the object makes
  the child start a watch when it imports `torch._dynamo`.
- A worker of torchrun, accelerate or DeepSpeed is a Python command that the launcher passes to `subprocess.Popen`, with the
  rank in its environment. dynx replaces the command by one that runs the same program under a watch.

Other subprocesses are not watched.
"""

from __future__ import annotations

import functools
import inspect
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

from dynx._handle import Handle
from dynx._torch.hooks import After, HookPoint, Subscription, Wrapping, subscribe, wrap
from dynx.errors import DynxError

OnError = Callable[[str, BaseException], None]

_SPAWN = HookPoint(
    "spawn", "multiprocessing.spawn:get_preparation_data", ("name",), purpose="child processes that multiprocessing spawns"
)
_POPEN = HookPoint(
    "subprocess", "subprocess:Popen.__init__", ("self", "args"), purpose="distributed workers that a launcher starts"
)
_FOLDER = str(Path(__file__).parent.parent)
# Runs in a spawned child process and starts a watch when the child imports `torch._dynamo`; if dynx cannot be imported, the
# child continues unwatched. multiprocessing has not set `sys.path` yet and replaces all of it right after this code.
_START_WATCH = """
import sys
sys.path.insert(0, {folder!r})
def tell(error):
    print(f"dynx does not watch this child: {{type(error).__name__}}: {{error}}", file=sys.stderr)
def start():
    try:
        from dynx.session import watch_child_process
        watch_child_process(**{settings!r})
    except Exception as error:
        tell(error)
try:
    from dynx._on_import import on_import
    on_import("torch._dynamo", start)
except Exception as error:
    tell(error)
"""
# Runs in a distributed worker; if the watch cannot start, the process executes the launcher's original command instead.
_RUN_WORKER = """
import os, sys
command = [sys.executable, *{options!r}, *sys.argv[1:]]
sys.path.insert(0, {folder!r})
try:
    from dynx.cli.run import worker
    del sys.path[0]
    run = worker(sys.argv[1], sys.argv[2:], is_module={is_module!r}, settings={settings!r})
except Exception as error:
    print(f"dynx does not watch this worker: {{type(error).__name__}}: {{error}}", file=sys.stderr, flush=True)
    os.execv(sys.executable, command)
run()
"""
# Environment variables that a launcher sets for a worker, and that are unset or have another value in the launcher itself.
_WORKER_VARIABLES = ("RANK", "LOCAL_RANK", "TORCHELASTIC_RESTART_COUNT", "ACCELERATE_MIXED_PRECISION")
_OPTIONS_WITH_VALUE = ("-W", "-X", "--check-hash-based-pycs")


@dataclass(frozen=True)
class ChildSettings:
    """Settings with which a child process opens its own watch.

    `out` is the path of the run file, to which the child adds its rank or process id. `command` is the command line in the
    header of that file; `started_by` has the header fields about the parent process.
    """

    out: str
    command: tuple[str, ...]
    detail: str
    started_by: Mapping[str, Any]


class _Children(Handle):
    def __init__(self, spawned: Subscription, workers: Wrapping) -> None:
        self._spawned, self._workers = spawned, workers

    def remove(self) -> None:
        self._spawned.remove()
        self._workers.remove()


def watch_children(settings: Callable[[], ChildSettings], on_error: OnError) -> Handle:
    """Install hooks that make child processes and distributed workers started from now on write their own run files.

    `settings` is called in the parent process each time a child process starts. If a child process starts unwatched, `on_error`
    is called with the name of the hook and the exception.
    """

    def before(args: tuple[Any, ...], kwargs: dict[str, Any]) -> After:
        def after(result: Any, raised: BaseException | None) -> None:
            if raised is None:
                result.setdefault("dynx", []).append(_StartWatch(settings()))  # an unknown key, which multiprocessing ignores

        return after

    return _Children(
        subscribe(_SPAWN, before, on_error=on_error),
        wrap(_POPEN, lambda original: _watching_workers(original, settings, on_error)),
    )


class _StartWatch:
    """An object in the data that multiprocessing pickles for a spawned child; unpickling it sets up the child's watch."""

    def __init__(self, settings: ChildSettings) -> None:
        self._text = _START_WATCH.format(folder=_FOLDER, settings=asdict(settings))

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str, dict[str, Any]]]:
        return exec, (self._text, {})


def _watching_workers(
    original: Callable[..., None], settings: Callable[[], ChildSettings], on_error: OnError
) -> Callable[..., None]:
    signature = inspect.signature(subprocess.Popen.__init__)

    @functools.wraps(original)
    def dynx_popen(*args: Any, **kwargs: Any) -> None:
        try:
            call = signature.bind(*args, **kwargs)
        except TypeError:
            return original(*args, **kwargs)  # raises the same TypeError
        try:
            if _starts_worker(call.arguments):
                call.arguments["args"] = watched_command(call.arguments["args"], call.arguments["env"], settings())
                args, kwargs = call.args, call.kwargs
        except Exception as error:  # noqa: BLE001 - the worker starts unwatched
            on_error("subprocess", error)
        return original(*args, **kwargs)

    return dynx_popen


def _starts_worker(arguments: Mapping[str, Any]) -> bool:
    """Return whether a `Popen` call starts a distributed worker: its `env` changes a variable such as RANK.

    Other subprocesses of a worker, such as the compile workers of Inductor, inherit the worker's own variables unchanged.
    """
    environment = arguments.get("env")
    if environment is None or arguments.get("shell") or arguments.get("executable") is not None:
        return False
    return any(name in environment and environment[name] != os.environ.get(name) for name in _WORKER_VARIABLES)


def watched_command(command: Any, environment: Mapping[str, str], settings: ChildSettings) -> Any:
    """Rewrite the command line of a distributed worker so that it runs the same program under a watch.

    Raises DynxError if the command does not run a script or module with this Python interpreter.
    """
    words = [os.fspath(word) for word in command] if isinstance(command, (list, tuple)) else [os.fspath(command)]
    first = words.index(sys.executable) if os.path.basename(words[0]) == "numactl" and sys.executable in words else 0
    if os.path.basename(words[first]) == "dynx":
        return command  # the worker runs dynx itself
    call = _parse(words[first + 1 :]) if _is_this_python(words[first], environment) else None
    if call is None:
        begin = " ".join(words[first : first + 3])
        raise DynxError(f"dynx cannot watch the worker {begin}: it is not a script or module run by {sys.executable}")
    if call.is_module and call.program[0] == "dynx":
        return command
    # the worker reads its rank from its own environment: a rank in `started_by` would be that of the launcher
    started_by = {name: settings.started_by[name] for name in ("parent", "job")}
    text = _RUN_WORKER.format(
        folder=_FOLDER,
        is_module=call.is_module,
        settings={**asdict(settings), "started_by": started_by},
        options=[*call.options, *(["-m"] if call.is_module else [])],
    )
    return [*words[: first + 1], *call.options, "-c", text, *call.program]


def _is_this_python(command: str, environment: Mapping[str, str]) -> bool:
    path = shutil.which(command, path=environment.get("PATH"))
    if path is None or not sys.executable:
        return False
    same_folder = os.path.dirname(os.path.abspath(path)) == os.path.dirname(os.path.abspath(sys.executable))
    return same_folder and os.path.samefile(path, sys.executable)


class _PythonCall(NamedTuple):
    options: list[str]
    program: list[str]  # a script or a module, and its arguments
    is_module: bool


def _parse(words: list[str]) -> _PythonCall | None:
    """Split the arguments of `python` into options and program; None if Python would run neither a script file nor a module."""
    position = 0
    while position < len(words) and words[position].startswith("-"):
        word = words[position]
        if word == "-m":
            program = words[position + 1 :]
            return _PythonCall(words[:position], program, is_module=True) if program else None
        if word == "-" or (set(word[1:]) & set("cm") and not word.startswith(("--", "-W", "-X"))):
            return None  # code from stdin or -c, or -m combined with another option as in -um
        position += 2 if word in _OPTIONS_WITH_VALUE else 1
    return _PythonCall(words[:position], words[position:], is_module=False) if position < len(words) else None
