"""`EagerTimes`: sample how long functions run uncompiled that torch gave up, or that it cannot resume after a graph break."""

from __future__ import annotations

import _thread
import ast
import linecache
import os
import re
import threading
import time
from dataclasses import dataclass

from dynx._handle import Handle
from dynx._reading.user_location import is_generated_by_torch
from dynx._torch.cache.stacks import Stacks
from dynx.records import Compile, GaveUp, Location, Record
from dynx.records.eager_time import EagerTime
from dynx.records.observed import Trouble

_EVERY = 0.02  # seconds between two samples, each of which takes about 0.1 ms
_LONGEST = 0.5  # seconds that one sample may stand for: a longer pause is time in which this thread could not run
_FRAME = re.compile(rb'  File "(?P<file>.*)", line (?P<line>\d+) in (?P<name>.*)')
# torch's files that compile, or run compiled code
_RUNS_TORCH = re.compile(rb"[/\\]torch[/\\](?:_dynamo[/\\]convert_frame|_functorch[/\\].*runtime_wrappers)\.py$")


@dataclass(eq=False)
class _Function:
    """A function that runs uncompiled: its first line and last line, and what was sampled of it."""

    location: Location
    last_line: int
    since: float  # clock of all samples when it was given up
    seconds: float = 0.0
    samples: int = 0


class EagerTimes(Handle):
    """A sampler of the stacks of all threads; its thread starts when the first function is given up."""

    def __init__(self) -> None:
        self._begin(None)

    def _begin(self, process: int | None) -> None:
        self._process = process  # that samples: a forked child has no such thread
        self._functions: dict[tuple[bytes, bytes], list[_Function]] = {}
        self._clock = 0.0  # seconds that were sampled
        self._end = threading.Event()
        self._sampling = threading.Lock()  # held by the thread that samples
        self._error: OSError | None = None

    def see(self, record: Record) -> None:
        """Begin to sample the function of a record which says that it runs uncompiled from now on."""
        match record:
            case Compile(outcome="skipped", resumes=None, of_dynx=False, location=location):
                pass
            case GaveUp(fatal=False, location=location):
                pass
            case _:
                return
        if location.library is not None:
            return
        is_new = self._process != os.getpid()
        if is_new:
            self._begin(os.getpid())
        name = location.function.rpartition(".")[2]
        functions = self._functions.setdefault((_written(location.file), _written(name)), [])
        if location not in (each.location for each in functions):
            functions.append(_Function(location, _last_line(location), self._clock))
        if is_new:
            _thread.start_new_thread(self._sample, ())  # not `threading.Thread`: the program may count its threads

    def remove(self) -> None:
        """Stop sampling."""
        if self._process == os.getpid():
            self._end.set()
            with self._sampling:
                pass

    @property
    def records(self) -> tuple[EagerTime | Trouble, ...]:
        """What this process sampled of each function, and why it could not."""
        if self._process != os.getpid():
            return ()
        functions = [each for functions in self._functions.values() for each in functions]
        times = [EagerTime(each.location, each.seconds, self._clock - each.since, each.samples) for each in functions]
        return (*times, *([Trouble("time that functions run uncompiled", str(self._error))] if self._error is not None else []))

    def _sample(self) -> None:
        try:
            with self._sampling, Stacks() as stacks:
                last = time.perf_counter()
                while not self._end.wait(_EVERY):
                    now = time.perf_counter()
                    self._take(stacks.read(), min(now - last, _LONGEST))
                    last = now
        except OSError as error:  # no temporary file
            self._error = error

    def _take(self, stacks: bytes, seconds: float) -> None:
        self._clock += seconds
        for stack in stacks.split(b"\n\n"):
            if (function := self._running_in(stack)) is not None:
                function.seconds += seconds
                function.samples += 1

    def _running_in(self, stack: bytes) -> _Function | None:
        """Return the function that a thread runs uncompiled; None if it compiles, or runs compiled code or something else."""
        for frame in _FRAME.finditer(stack):  # the innermost first
            if _RUNS_TORCH.search(frame["file"]) or is_generated_by_torch(os.fsdecode(frame["file"])):
                return None
            line = int(frame["line"])
            for function in self._functions.get((frame["file"], frame["name"]), ()):
                if function.location.line <= line <= function.last_line:
                    return function
        return None


def _written(text: str) -> bytes:
    """Return a text as `faulthandler` writes it."""
    return text.encode("ascii", "backslashreplace")


def _last_line(location: Location) -> int:
    """Return the last line of a function, by its source; its first line if there is none."""
    try:
        tree = ast.parse("".join(linecache.getlines(location.file)))
    except (SyntaxError, ValueError):
        return location.line
    nodes = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda))
    return max((node.end_lineno or 0 for node in nodes if location.line in _first_lines(node)), default=location.line)


def _first_lines(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> tuple[int, ...]:
    """Return the line of `def` or `lambda`, and those of decorators, with which a code object begins."""
    return node.lineno, *(() if isinstance(node, ast.Lambda) else (each.lineno for each in node.decorator_list))
