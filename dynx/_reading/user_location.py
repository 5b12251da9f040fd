"""Choose which line of a stack is shown to the user, by the owner of each file: user, torch, dynx, Python or a library."""

from __future__ import annotations

import importlib.util
import os
import re
import sys
import sysconfig
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cache
from itertools import islice
from traceback import walk_stack
from types import CodeType, FrameType
from typing import Literal, NamedTuple

from dynx._bytecode.source import line_at
from dynx._reading.qualname import lines_of_uses, qualname_at, statement_lines
from dynx._torch.compilation.frame import user_name
from dynx._torch.tracing.stack import RawFrame
from dynx.records import Location

Owner = Literal["user", "torch", "dynx", "python", "library"]

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
# programs of dynx that are treated as a user's
_USER_PROGRAMS = tuple(
    os.path.join(_PACKAGE, *name) for name in (("_doctor", "canaries.py"), ("cli", "demo", "demo_program.py"))
)
_MAX_DECORATOR_LINES = 40  # between the first decorator and `def`
_MAX_CODE = 120  # characters of a source line in a record
_SITE = ("site-packages", "dist-packages")


class FileOwner(NamedTuple):
    """Who wrote a file: the user, torch, dynx, Python's standard library, or the library with the name `library`."""

    kind: Owner
    library: str | None = None  # the name of the folder or module directly under site-packages


_OF_INDUCTOR = re.compile(r"[/\\](?P<folder>[a-z2-7]{2})[/\\]c(?P=folder)[a-z2-7]{40,}\.py$")  # in inductor's cache on disk


def is_generated_by_torch(file: str) -> bool:
    """Return whether a file is the code of a `GraphModule`, or of inductor, wherever its cache is."""
    return file.startswith("<eval_with_key>") or bool(_OF_INDUCTOR.search(file))


@cache
def owner_of_file(file: str) -> FileOwner:
    """Return the owner of a file; code without a file (a notebook cell, a string passed to `exec`) belongs to the user."""
    if is_generated_by_torch(file):
        return FileOwner("torch")
    if file.startswith("<frozen"):
        return FileOwner("python")
    if file.startswith("<"):
        return FileOwner("user")
    path = os.path.abspath(file)
    if path in _USER_PROGRAMS:
        return FileOwner("user")
    for root, owner in _roots():
        if path.startswith(root):
            return FileOwner(owner)
    parts = path.split(os.sep)
    for index, part in enumerate(parts[:-1]):
        if part in _SITE:
            return FileOwner("library", parts[index + 1].removesuffix(".py"))
    if path.startswith(_standard_library()):
        return FileOwner("python")
    folder = next((entry for entry in sys.path if entry and path.startswith(entry + os.sep) and _is_installed(entry)), None)
    if folder is not None:
        return FileOwner("library", os.path.relpath(path, folder).split(os.sep)[0].removesuffix(".py"))
    return FileOwner("user")


@cache
def _is_installed(folder: str) -> bool:
    """Return whether pip installed packages into this folder of `sys.path`, such as with `pip install --target`."""
    try:
        return any(name.endswith(".dist-info") for name in os.listdir(folder))
    except OSError:
        return False


@cache
def _roots() -> tuple[tuple[str, Owner], ...]:
    roots: list[tuple[str, Owner]] = []
    for package, owner in (("torch", "torch"), ("functorch", "torch"), ("dynx", "dynx")):
        spec = importlib.util.find_spec(package)
        for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
            roots.append((os.path.abspath(folder) + os.sep, owner))  # type: ignore[arg-type]
    return tuple(roots)


@cache
def _standard_library() -> tuple[str, ...]:
    paths = [sysconfig.get_path(name) for name in ("stdlib", "platstdlib")]
    return tuple({path + os.sep for path in (*paths, *map(os.path.realpath, paths))})


def is_visible(file: str) -> bool:
    """Return whether lines of this file are shown to the user: their own code, or a library's."""
    return owner_of_file(file).kind in ("user", "library")


def user_location(stack: Sequence[RawFrame], call_site: Location | None = None) -> Location | None:
    """Return the innermost line of `stack` (outermost first) that is not in torch, dynx or the standard library.

    If there is none, return `call_site`, the line that called the compiled function. If the returned line is in a library, its
    `caller` is the innermost line of the user's own code in the stack, or else `call_site`.
    """
    visible = [frame for frame in stack if is_visible(frame.file) and not _is_generated(frame)]
    if not visible:
        return call_site
    innermost = visible[-1]
    owner, library = owner_of_file(innermost.file)
    if owner == "user":
        return location_of(innermost)
    own = next((frame for frame in reversed(visible) if owner_of_file(frame.file).kind == "user"), None)
    caller = location_of(own) if own is not None else (call_site.own if call_site is not None else None)
    return location_of(innermost, library, caller)


def _is_generated(frame: RawFrame) -> bool:
    """Return whether a frame is in a method that dataclass or namedtuple generated (`__init__` in the file `<string>`)."""
    return frame.file == "<string>" and frame.function.startswith("__")


def location_of(frame: RawFrame, library: str | None = None, caller: Location | None = None) -> Location:
    function = user_name(frame.function)
    return Location(frame.file, frame.line, function, frame.column, frame.end_column, library, caller)


def named(location: Location) -> Location:
    """Replace the function name of a location by the qualified name: `Block.forward`, where torch's stacks say `forward`.

    Reads the source file, so call it only for a location that is reported, not for every stack.
    """
    caller = named(location.caller) if location.caller is not None else None
    return replace(location, function=qualname_at(location.file, location.line, location.function), caller=caller)


def code_at(location: Location | None) -> str:
    """Return the source of the statement at a location, joined into one line; empty if the source cannot be read.

    If the location is in a library, return the statement of the user's code that led to it (`location.own`). A compound
    statement includes its first inner statement: `if x.isnan(): raise ValueError("x")`. A long statement is cut to its first
    line and the line at the location: `losses.append( … loss.item()`.
    """
    if location is None:
        return ""
    file, line, function = location.own.file, location.own.line, location.own.function
    own = line_at(file, line, function).strip()
    if not own:
        return ""
    lines = [line_at(file, number, function).strip() for number in statement_lines(file, line)]
    text = " ".join(filter(None, lines))
    if len(text) > _MAX_CODE:
        text = own if own == lines[0] else f"{lines[0]} … {own}"
    return text if len(text) <= _MAX_CODE else text[: _MAX_CODE - 1] + "…"


def uses_at(location: Location | None) -> tuple[str, ...]:
    """If the statement at `location` assigns a variable, return the source of the next statements that use the variable.

    For a location in a library, the statement is the one in the user's code that led there (`location.own`).
    """
    if location is None:
        return ()
    own = location.own
    return tuple(code_at(replace(own, line=line)) for line in lines_of_uses(own.file, own.line))


def first_line(code: CodeType) -> int:
    """Return the line of a function's `def`, since `co_firstlineno` is the line of the first decorator."""
    first, name = code.co_firstlineno, user_name(code.co_name)
    if not line_at(code.co_filename, first, name).lstrip().startswith("@"):
        return first
    candidates = range(first, first + _MAX_DECORATOR_LINES)
    return next(
        (line for line in candidates if line_at(code.co_filename, line, name).lstrip().startswith(("def ", "async def "))),
        first,
    )


def chain_of(stack: Iterable[RawFrame]) -> tuple[Location, ...]:
    """Return the lines of a stack that are in the user's code or a library, outermost first."""
    return tuple(location_of(frame, owner_of_file(frame.file).library) for frame in stack if is_visible(frame.file))


def call_site() -> Location | None:
    """Return the innermost line of the user's code or a library in the current stack, such as a call of compiled code."""
    frame: FrameType | None = sys._getframe(1)
    stack: list[RawFrame] = []
    while frame is not None:  # not `walk_stack`, which computes the line of each frame of torch too, in each compilation
        file = frame.f_code.co_filename
        if is_visible(file):
            line = frame.f_lineno or frame.f_code.co_firstlineno
            stack.append(RawFrame(file, line, frame.f_code.co_qualname, *_columns(frame, line)))
            if owner_of_file(file).kind == "user":
                break
        frame = frame.f_back
    return user_location(stack[::-1])


def _columns(frame: FrameType, line: int) -> tuple[int | None, int | None]:
    """Return the first and last column of the call that a frame executes; each is None if unknown or not on `line`."""
    positions = next(islice(frame.f_code.co_positions(), frame.f_lasti // 2, None), None)
    if positions is None or positions[0] != line:
        return None, None
    _, end_line, column, end_column = positions
    return column, end_column if end_line == line else None


def frame_of_call() -> tuple[FrameType | None, int]:
    """Return the frame of the user's code that called a compiled function, and its depth in the stack.

    The depth is 0 for the function that called `frame_of_call`, 1 for its caller. Frames of the user's code that torch called,
    such as that of the compiled function, are skipped unless there is no other frame of the user's code.
    """
    frame: FrameType | None = sys._getframe(1)
    calling: tuple[FrameType | None, int] = None, 0
    depth = 0
    while frame is not None:
        outer = frame.f_back
        if owner_of_file(frame.f_code.co_filename).kind == "user":
            is_called_by_torch = outer is not None and owner_of_file(outer.f_code.co_filename).kind == "torch"
            if not is_called_by_torch or calling[0] is None:
                calling = frame, depth
            if not is_called_by_torch:
                break
        frame, depth = outer, depth + 1
    return calling


def location_of_call() -> Location | None:
    """Return the line of the frame that `frame_of_call` returns; None if there is no such frame."""
    frame, _ = frame_of_call()
    return None if frame is None else location_of(RawFrame(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_qualname))


def user_stacklevel() -> int:
    """Return the `stacklevel` to pass to `warnings.warn` so that the warning names the innermost line of the user's code."""
    levels = enumerate(walk_stack(sys._getframe(1)), 1)
    return next((level for level, (frame, _) in levels if owner_of_file(frame.f_code.co_filename).kind == "user"), 1)
