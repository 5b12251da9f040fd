"""Processes that a watched program starts are watched too; each writes a run file of its own beside the parent's.

- A forked child inherits its parent's watch.
- A child that multiprocessing spawns (`torch.multiprocessing.spawn`, a `DataLoader`) starts as a new interpreter and gets its
  parent's main module, path and arguments as a pickled dict (`multiprocessing.spawn`); dynx adds an entry that starts a watch
  when it is unpickled.
- A worker of torchrun, accelerate or DeepSpeed is a Python command that the launcher passes to `subprocess.Popen`, with the
  rank in its environment; dynx replaces it by one that watches the same program.

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

_SPAWN = HookPoint("spawn", "multiprocessing.spawn:get_preparation_data", ("name",), purpose="children that the program spawns")
_POPEN = HookPoint("subprocess", "subprocess:Popen.__init__", ("self", "args"), purpose="workers that a launcher starts")
_FOLDER = str(Path(__file__).parent.parent)
# A child without dynx runs on unwatched. Its path is not set up yet and is replaced as a whole right after this.
_JOIN = """
import sys
sys.path.insert(0, {folder!r})
try:
    from dynx.session import join
    join(**{settings!r})
except Exception as error:
    print(f"dynx does not watch this child: {{type(error).__name__}}: {{error}}", file=sys.stderr)
"""
# A worker that cannot be watched becomes the command that the launcher asked for.
_WORK = """
import os, sys
command = [sys.executable, *{options!r}, *sys.argv[1:]]
sys.path.insert(0, {folder!r})
try:
    from dynx.cli.worker import load
    del sys.path[0]
    run = load(sys.argv[1], sys.argv[2:], is_module={is_module!r}, settings={settings!r})
except Exception as error:
    print(f"dynx does not watch this worker: {{type(error).__name__}}: {{error}}", file=sys.stderr, flush=True)
    os.execv(sys.executable, command)
run()
"""
# What a launcher sets for a worker and does not have in its own environment, or has with another value.
_WORKER_VARIABLES = ("RANK", "LOCAL_RANK", "TORCHELASTIC_RESTART_COUNT", "ACCELERATE_MIXED_PRECISION")
_OPTIONS_WITH_VALUE = ("-W", "-X", "--check-hash-based-pycs")


@dataclass(frozen=True)
class ChildSettings:
    """What a child needs for its watch: the path its own is named after, and what its header says about the parent."""

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
    """Make every child and worker that is started from now on write a run file of its own.

    Args:
        settings: called in the parent each time a child starts.
        on_error: called with a hook's name and an exception where a child starts unwatched.
    """

    def before(args: tuple[Any, ...], kwargs: dict[str, Any]) -> After:
        def after(result: Any, raised: BaseException | None) -> None:
            if raised is None:
                result.setdefault("dynx", []).append(_Join(settings()))  # multiprocessing ignores keys it does not know

        return after

    return _Children(
        subscribe(_SPAWN, before, on_error=on_error),
        wrap(_POPEN, lambda original: _watching_workers(original, settings, on_error)),
    )


class _Join:
    """Unpickling it in a child starts the child's watch."""

    def __init__(self, settings: ChildSettings) -> None:
        self._text = _JOIN.format(folder=_FOLDER, settings=asdict(settings))

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
            return original(*args, **kwargs)  # raises the same
        try:
            if _starts_worker(call.arguments):
                call.arguments["args"] = watched_command(call.arguments["args"], call.arguments["env"], settings())
                args, kwargs = call.args, call.kwargs
        except Exception as error:  # noqa: BLE001 - the worker starts unwatched
            on_error("subprocess", error)
        return original(*args, **kwargs)

    return dynx_popen


def _starts_worker(arguments: Mapping[str, Any]) -> bool:
    """Return whether a call of `Popen` starts a rank, rather than something that a rank needs."""
    environment = arguments.get("env")
    if environment is None or arguments.get("shell") or arguments.get("executable") is not None:
        return False
    return any(name in environment and environment[name] != os.environ.get(name) for name in _WORKER_VARIABLES)


def watched_command(command: Any, environment: Mapping[str, str], settings: ChildSettings) -> Any:
    """Return the command that runs the same program watched.

    Raises:
        DynxError: the command does not run a program with this Python.
    """
    words = [os.fspath(word) for word in command] if isinstance(command, (list, tuple)) else [os.fspath(command)]
    first = words.index(sys.executable) if os.path.basename(words[0]) == "numactl" and sys.executable in words else 0
    if os.path.basename(words[first]) == "dynx":
        return command  # it watches itself
    call = _parse(words[first + 1 :]) if _is_this_python(words[first], environment) else None
    if call is None:
        raise DynxError(f"a worker runs {' '.join(words[first : first + 3])}, not a program of {sys.executable}")
    if call.is_module and call.program[0] == "dynx":
        return command
    # a rank by its own environment, also where its launcher is one of several that run as ranks
    started_by = {name: settings.started_by[name] for name in ("parent", "job")}
    text = _WORK.format(
        folder=_FOLDER,
        is_module=call.is_module,
        settings={**asdict(settings), "started_by": started_by},
        options=[*call.options, *(["-m"] if call.is_module else [])],
    )
    return [*words[: first + 1], *call.options, "-c", text, *call.program]


def _is_this_python(command: str, environment: Mapping[str, str]) -> bool:
    """Return whether `command` is this interpreter, in the same environment of packages."""
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
    """Split a Python command line into options and program; None if it runs neither a script file nor a module."""
    position = 0
    while position < len(words) and words[position].startswith("-"):
        word = words[position]
        if word == "-m":
            program = words[position + 1 :]
            return _PythonCall(words[:position], program, is_module=True) if program else None
        if word == "-" or (set(word[1:]) & set("cm") and not word.startswith(("--", "-W", "-X"))):
            return None  # a program on stdin, -c, or -m joined with another option
        position += 2 if word in _OPTIONS_WITH_VALUE else 1
    return _PythonCall(words[:position], words[position:], is_module=False) if position < len(words) else None
