"""`dynx run script.py args…`, also `-m`, `-c` and `-`: run a program as Python would, and report what torch.compile did."""

from __future__ import annotations

import argparse
import atexit
import os
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from types import CodeType, ModuleType
from typing import TYPE_CHECKING, Any

from dynx._runfile.rank import Rank, rank_in_environment
from dynx._what_if.budget import SHARE
from dynx.cli import program
from dynx.cli.command import Subparsers
from dynx.cli.program import trying
from dynx.cli.program.tracebacks import hide_our_frames
from dynx.cli.progress import Progress
from dynx.cli.run_file import DEFAULT, add_top
from dynx.cli.screen import encodable, flush, show
from dynx.records.location import short_path

if TYPE_CHECKING:
    from dynx._run import Run
    from dynx.session import Watch

Trials = Callable[["Run", Path | None], "Run"]  # adds trials to a run, and to its file


def add_to(commands: Subparsers) -> None:
    parser = commands.add_parser(
        "run",
        help="run a program and explain what torch.compile did",
        usage="dynx run [--out FILE] [--full] [--top N] [--what-if SHARE] [--post-mortem] [--detail full] [--pgo FILE] [--try] "
        "[-m | -c] program [arguments …]",
    )
    parser.add_argument(
        "--out", type=Path, default=DEFAULT, metavar="FILE", help=f"the run file that is written (default: {DEFAULT})"
    )
    parser.add_argument("--post-mortem", action="store_true", help="show frames, locals and guards at each graph break")
    parser.add_argument(
        "--detail",
        choices=("normal", "full"),
        default="normal",
        help="full: also record guards, graph code, the cost of traced lines, and the frames and locals at each graph break",
    )
    parser.add_argument(
        "--what-if",
        type=float,
        default=SHARE,
        metavar="SHARE",
        help="try the fixes of findings on calls that recompile, by tracing them again with each fix, without running them, "
        "for at most this share of the compile time (default: %(default)s; 0: none; inf: all)",
    )
    parser.add_argument("--full", action="store_true", help="show all that was recorded, in tables, not only the findings")
    parser.add_argument(
        "--pgo",
        type=Path,
        metavar="FILE",
        help="start with the profile of dynamic sizes in FILE if it exists, and update FILE at the end; "
        "with it, the symbol of a dynamic size is computed from the size's name in guards, so that it is equal in all runs",
    )
    parser.add_argument("--trial", type=Path, help=argparse.SUPPRESS)  # of `dynx fix`: the file of a plan
    trying.add_to(parser)
    add_top(parser)
    program.add_to(parser)
    parser.set_defaults(act=act)


def act(arguments: argparse.Namespace) -> Callable[[], int]:
    """Load the program and return the function that runs it.

    The program's exit code, output, exceptions and tracebacks are the same as without dynx. The report is printed when the
    interpreter exits, after the program's threads and exit handlers, which may compile functions too.
    """
    load, module = program.prepare(arguments.target, arguments.rest, option=arguments.option)
    saved = _absolute(arguments.out)
    tools = _tools(arguments)
    trials = trying.trials_of(arguments) if arguments.tries else None

    def run() -> int:
        from dynx.session import Watch

        shown = program.shortened(arguments.target) if arguments.option == "-c" else arguments.target
        command = ["dynx", "run", *filter(None, [arguments.option]), shown, *arguments.rest]
        what_if = arguments.what_if if arguments.what_if > 0 else None
        watch = Watch(saved, detail=arguments.detail, what_if=what_if, command=command)
        if arguments.trial is not None:
            from dynx.fix._inside import PlanInUse

            trial = PlanInUse(arguments.trial, module, load)
            return execute(trial.load, module, Ending(watch, None, [*tools, trial]), is_module=arguments.option == "-m")
        ending = Ending(watch, lambda: _report(watch, trials, full=arguments.full, top=arguments.top), tools)
        return execute(load, module, ending, is_module=arguments.option == "-m")

    return run


def _absolute(path: Path) -> Path:
    """Return an absolute path, since the program may change the directory; the path itself if the directory was deleted."""
    try:
        return path.absolute()
    except FileNotFoundError:
        return path


def _tools(arguments: argparse.Namespace) -> list[AbstractContextManager[Any]]:
    """Return the context managers to enter while the program runs, for the options --post-mortem and --pgo."""
    tools: list[AbstractContextManager[Any]] = []
    if arguments.post_mortem and arguments.detail == "normal":
        from dynx.comptime import PostMortem

        tools.append(PostMortem())
    if arguments.pgo is not None:
        tools.append(_warm(arguments.pgo))
    return tools


def _warm(path: Path) -> AbstractContextManager[None]:
    """Apply the profile of --pgo now; return a context manager that saves it at the end, and prints its path on stderr.

    Also print which functions of the profile have changed. An unreadable file ends the command before the program starts.
    """
    from dynx.pgo import warm_start
    from dynx.pgo._apply import notice
    from dynx.report._words import plural

    profile = warm_start(path)
    if text := notice(profile.matches):
        sys.stderr.write(f"dynx: {text}\n")

    @contextmanager
    def entered() -> Iterator[None]:
        try:
            yield
        finally:
            profile.remove()
            if profile.learned is not None and profile.saved is not None:
                functions = plural(len(profile.learned.frames), "function")
                sys.stderr.write(f"dynx: profile of {functions} saved: {short_path(str(profile.saved))}\n")

    return entered()


def execute(load: Callable[[], CodeType], module: ModuleType, ending: Ending | None, *, is_module: bool) -> int:
    """Run a program as `__main__`, and return its exit code.

    `ending`, if not None, records the compilations of the program, and reports them when the interpreter exits.
    """
    from dynx.session import outcome_of

    if is_module:
        sys.argv[0] = module.__file__ or ""
    sys.modules["__main__"] = module
    code = program.loaded(load)  # a program with a syntax error is not recorded
    if ending is not None:
        atexit.register(ending.act)  # registered before the program's exit handlers, so it runs after them
        ending.start()
    try:
        exec(code, module.__dict__)
    except BaseException as error:
        if ending is not None:
            ending.outcome = outcome_of(error)
            ending.interrupted = isinstance(error, KeyboardInterrupt)
        if isinstance(error, SystemExit):
            raise
        hide_our_frames()
        raise
    return 0


def worker(target: str, arguments: Sequence[str], *, is_module: bool, settings: Mapping[str, Any]) -> Callable[[], int]:
    """Load the program (script or module) of a worker of torchrun or a similar launcher; return the function that runs it.

    The worker writes a run file, and the launcher prints the report. `settings` are keyword arguments of
    `dynx.session.Watch`, with the path `out` as a str. Raises UsageError if there is no such program.
    """
    from dynx.session import Watch

    load, module = program.prepare(target, arguments, option="-m" if is_module else "")
    ending = Ending(Watch(**{**settings, "out": Path(settings["out"])}), report=None)
    return lambda: execute(load, module, ending, is_module=is_module)


class Ending:
    """The exit handler of a watched program: it closes the run file, and calls `report` unless that is None."""

    def __init__(
        self, watch: Watch, report: Callable[[], None] | None, tools: Iterable[AbstractContextManager[Any]] = ()
    ) -> None:
        self.outcome = "finished"
        self.interrupted = False
        self._watch, self._report, self._tools = watch, report, tuple(tools)
        self._open = ExitStack()
        self._progress: Progress | None = None
        self._pid = os.getpid()

    def start(self) -> None:
        # ranks may share a terminal: only rank 0 shows progress
        if self._report is not None and (rank_in_environment() or Rank(0, 1)).rank == 0:
            self._progress = Progress().__enter__()
        self._watch.__enter__()
        for tool in self._tools:
            self._open.enter_context(tool)

    def act(self) -> None:
        self._open.close()
        self._watch.close(outcome=self.outcome)
        if self._progress is not None:
            self._progress.__exit__()
        if self._report is not None and os.getpid() == self._pid:  # a forked child leaves the report to its parent
            self._report()
        if self.interrupted:
            _end_by_signal()


def _report(watch: Watch, trials: Trials | None, *, full: bool, top: int | None) -> None:
    from rich.console import Group, RenderableType
    from rich.text import Text

    from dynx.cli.run_file.children import report
    from dynx.report import _words as words

    if sys.stderr is None or getattr(sys.stderr, "closed", False):
        return
    run, saved = watch.run, watch.path
    if trials is not None:
        run = trials(run, saved if watch.is_saved else None)
    parts: list[RenderableType] = [Text(""), report(run, saved, full=full, top=top)]
    if saved is not None and watch.is_saved and saved.is_file():
        parts.append(Text(f" saved: {words.show(saved)}", style="dim"))
    flush(sys.stdout)
    try:
        with encodable(sys.stderr):
            show(Group(*parts), stderr=True)  # in one write: several ranks may print on one terminal
    except OSError:
        pass  # stderr is a pipe without a reader


def _end_by_signal() -> None:
    """End the process by SIGINT, as Python does after KeyboardInterrupt, so that a calling shell script stops too."""
    flush(sys.stdout)
    flush(sys.stderr)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGINT)
