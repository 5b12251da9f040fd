"""`dynx run script.py args…`: run a program as Python would, and say what torch.compile did."""

from __future__ import annotations

import argparse
import atexit
import glob
import os
import signal
import sys
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dynx.cli import program
from dynx.cli.progress import Progress

if TYPE_CHECKING:
    from dynx.comptime import PostMortem
    from dynx.records import Run
    from dynx.session import Watch

DEFAULT = Path(".dynx") / "last.dynx"


def add_to(commands: Any) -> None:
    parser = commands.add_parser(
        "run",
        help="run a program and explain what torch.compile did",
        usage="dynx run [--out FILE] [--full] [--post-mortem] [--detail full] [-m] target [arguments of the program …]",
    )
    parser.add_argument(
        "--out", type=Path, default=DEFAULT, metavar="FILE", help=f"where the run is saved (default: {DEFAULT})"
    )
    parser.add_argument("--post-mortem", action="store_true", help="show what the tracer knew at each graph break")
    parser.add_argument(
        "--detail",
        choices=("normal", "full"),
        default="normal",
        help="full adds guards, graph code, the cost of every traced line, and --post-mortem",
    )
    parser.add_argument("--full", action="store_true", help="show every table, not only what needs attention")
    parser.add_argument("-m", dest="module", action="store_true", help="target is a module, as in python -m")
    parser.add_argument("target")
    parser.set_defaults(act=act)


def split(argv: list[str]) -> tuple[list[str], list[str]]:
    """Part the command line of what runs a program behind the target: what follows is the program's, also `--` and `--out`."""
    if argv[:1] not in (["run"], ["guards"]):
        return list(argv), []
    position = 1
    while position < len(argv) and argv[position].startswith("-"):
        position += 2 if argv[position] in ("--out", "--detail") else 1
    return list(argv[: position + 1]), list(argv[position + 1 :])


def act(arguments: argparse.Namespace) -> Callable[[], int]:
    """Load the program and give the function that runs it.

    Its exit code, its output, its exceptions and tracebacks are those it has without dynx. The report comes when the
    interpreter ends, after the program's threads and exit handlers, which may still compile.
    """
    sys.argv = ["-m" if arguments.module else arguments.target, *arguments.rest]
    load, module = program.load_module(arguments.target) if arguments.module else program.load_script(arguments.target)
    saved = arguments.out.absolute()  # the program may change directory

    def run() -> int:
        from dynx.comptime import PostMortem
        from dynx.session import Watch

        command = ["dynx", "run", *(["-m"] if arguments.module else []), arguments.target, *arguments.rest]
        watch = Watch(saved, detail=arguments.detail, command=command)
        ending = _Ending(watch, PostMortem(), saved, full=arguments.full)
        if arguments.module:
            sys.argv[0] = module.__file__ or ""
        sys.modules["__main__"] = module
        atexit.register(ending.report)  # the first to be registered is the last to run
        ending.progress.__enter__()
        watch.__enter__()
        if arguments.post_mortem and arguments.detail == "normal":
            ending.post_mortem.__enter__()
        try:
            exec(load(), module.__dict__)
        except SystemExit as error:
            ending.outcome = f"exit {_exit_code(error)}"
            raise
        except BaseException as error:
            ending.outcome = f"raised {type(error).__name__}"
            ending.interrupted = isinstance(error, KeyboardInterrupt)
            sys.excepthook = program.without_our_frames(sys.excepthook)
            raise
        return 0

    return run


class _Ending:
    """What is left to do when the program is over: close the run file and report."""

    def __init__(self, watch: Watch, post_mortem: PostMortem, saved: Path, *, full: bool) -> None:
        self.outcome = "finished"
        self.interrupted = False
        self.progress = Progress()
        self.post_mortem = post_mortem
        self._watch, self._saved, self._full = watch, saved, full
        self._pid = os.getpid()

    def report(self) -> None:
        self.post_mortem.__exit__(None, None, None)
        self._watch.close(outcome=self.outcome)
        self.progress.__exit__()
        if os.getpid() == self._pid:  # a forked child leaves the report to its parent
            _report(self._watch.run, self._saved, full=self._full)
        if self.interrupted:
            _end_by_signal()


def _exit_code(error: SystemExit) -> int:
    if error.code is None:
        return 0
    return error.code if isinstance(error.code, int) else 1


def _report(run: Run, saved: Path, *, full: bool) -> None:
    from rich.console import Console
    from rich.text import Text

    from dynx.records.location import short_path
    from dynx.report import terminal

    if sys.stderr is None or sys.stderr.closed:
        return
    console = Console(stderr=True)
    _flush(sys.stdout)
    try:
        console.print()
        console.print(terminal(run, full=full))
        if saved.is_file():
            console.print(Text(f" saved: dynx show {short_path(str(saved))}", style="dim"))
        for child in _children(saved, run):
            console.print(Text(f" child: dynx show {short_path(str(child))}", style="dim"))
    except OSError:
        pass  # nobody reads it any more


def _children(saved: Path, run: Run) -> list[Path]:
    """Find the files that forked and spawned children of this run wrote, not those of earlier runs."""
    started = datetime.fromisoformat(run.header["started"]).timestamp()
    files = saved.parent.glob(f"{glob.escape(saved.stem)}.*{saved.suffix}")
    return sorted(path for path in files if path.stem.rpartition(".")[2].isdigit() and path.stat().st_mtime >= started)


def _flush(stream: Any) -> None:
    try:
        stream.flush()
    except (AttributeError, OSError, ValueError):
        pass  # the program has closed it, or put something else in its place


def _end_by_signal() -> None:
    """End as an interrupted Python does: by SIGINT itself, which tells a shell to stop its script."""
    _flush(sys.stdout)
    _flush(sys.stderr)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGINT)
