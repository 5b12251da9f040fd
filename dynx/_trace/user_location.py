"""Whose code a line is, and the line to show the user."""

from __future__ import annotations

import importlib.util
import linecache
import os
import sys
import sysconfig
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cache
from types import CodeType, FrameType
from typing import Literal

from dynx._torch.compilation.frame import user_name
from dynx._torch.tracing.stack import RawFrame
from dynx._trace.qualname import qualname_at
from dynx.records import Location

Owner = Literal["user", "torch", "dynx", "python", "library"]

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
# files of the package that play a user's program
_PLAYED = tuple(os.path.join(_PACKAGE, *name) for name in (("_doctor", "canaries.py"), ("cli", "demo_program.py")))
_LONGEST_DECORATORS = 40  # lines between a first decorator and its def
_SITE = ("site-packages", "dist-packages")


@cache
def owner_of_file(file: str) -> tuple[Owner, str | None]:
    """Say whose file it is, and for a library its name: the folder or module right under site-packages.

    Code without a file (a notebook cell, a string given to exec) is the user's.
    """
    if file.startswith("<frozen"):
        return "python", None
    if file.startswith("<"):
        return "user", None
    path = os.path.abspath(file)
    if path in _PLAYED:
        return "user", None
    for root, owner in _roots():
        if path.startswith(root):
            return owner, None
    parts = path.split(os.sep)
    for index, part in enumerate(parts[:-1]):
        if part in _SITE:
            return "library", parts[index + 1].removesuffix(".py")
    if path.startswith(_standard_library()):
        return "python", None
    return "user", None


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
    names = ("stdlib", "platstdlib")
    return tuple(
        {os.path.realpath(sysconfig.get_path(name)) + os.sep for name in names}
        | {sysconfig.get_path(name) + os.sep for name in names}
    )


def is_visible(file: str) -> bool:
    """Tell whether a line there means something to the user: their own code or a library's."""
    return owner_of_file(file)[0] in ("user", "library")


def user_location(stack: Sequence[RawFrame], call_site: Location | None = None) -> Location | None:
    """Give the innermost line of `stack` (outermost first) that is not torch's, dynx's or the standard library's.

    When it stands in a library, `caller` is the innermost line of the user's own code further out, in the stack or else at
    `call_site`, the line that called the compiled function.
    """
    visible = [frame for frame in stack if is_visible(frame.file) and not _generated(frame)]
    if not visible:
        return call_site
    innermost = visible[-1]
    owner, library = owner_of_file(innermost.file)
    if owner == "user":
        return location_of(innermost)
    own = next((frame for frame in reversed(visible) if owner_of_file(frame.file)[0] == "user"), None)
    caller = location_of(own) if own is not None else (call_site.own if call_site is not None else None)
    return location_of(innermost, library, caller)


def _generated(frame: RawFrame) -> bool:
    """Tell methods that dataclasses and namedtuple write into a string from a program given with `python -c`."""
    return frame.file == "<string>" and frame.function.startswith("__")


def location_of(frame: RawFrame, library: str | None = None, caller: Location | None = None) -> Location:
    return Location(
        frame.file,
        frame.line,
        user_name(frame.function),
        frame.column,
        frame.end_column,
        library=library,
        caller=caller,
    )


def named(location: Location) -> Location:
    """Give the location with the full name of its function: torch's stacks say `forward`, a user looks for `Block.forward`.

    Reads the source file, so only for what becomes a record.
    """
    caller = named(location.caller) if location.caller is not None else None
    return replace(location, function=qualname_at(location.file, location.line, location.function), caller=caller)


def first_line(code: CodeType) -> int:
    """Give the line of `def`; `co_firstlineno` is that of the first decorator."""
    first = code.co_firstlineno
    if not linecache.getline(code.co_filename, first).lstrip().startswith("@"):
        return first
    within = range(first, first + _LONGEST_DECORATORS)
    return next(
        (n for n in within if linecache.getline(code.co_filename, n).lstrip().startswith(("def ", "async def "))), first
    )


def chain_of(stack: Iterable[RawFrame]) -> tuple[Location, ...]:
    """Give every visible line of a stack, outermost first."""
    return tuple(location_of(frame, owner_of_file(frame.file)[1]) for frame in stack if is_visible(frame.file))


def call_site() -> Location | None:
    """Give the line that is calling compiled code right now: the innermost visible line of the Python stack."""
    frame: FrameType | None = sys._getframe(1)
    stack: list[RawFrame] = []
    while frame is not None:
        file = frame.f_code.co_filename
        if is_visible(file):
            stack.append(RawFrame(file, frame.f_lineno or frame.f_code.co_firstlineno, frame.f_code.co_qualname))
            if owner_of_file(file)[0] == "user":
                break
        frame = frame.f_back
    return user_location(stack[::-1])


def frame_of_call() -> tuple[FrameType | None, int]:
    """Give the frame of the user's that calls compiled code right now, and how far it is from the frame that asks.

    The compiled code itself is the user's too, as far as its frame tells: it is a frame that torch has called.
    """
    frame: FrameType | None = sys._getframe(1)
    found: tuple[FrameType | None, int] = None, 0
    depth = 0
    while frame is not None:
        outer = frame.f_back
        if owner_of_file(frame.f_code.co_filename)[0] == "user":
            is_called_by_torch = outer is not None and owner_of_file(outer.f_code.co_filename)[0] == "torch"
            if not is_called_by_torch or found[0] is None:
                found = frame, depth
            if not is_called_by_torch:
                break
        frame, depth = outer, depth + 1
    return found


def location_of_call() -> Location | None:
    """Give the line of the user's that calls compiled code right now."""
    frame, _ = frame_of_call()
    return None if frame is None else location_of(RawFrame(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_qualname))


def levels_to_the_user() -> int:
    """Give the `stacklevel` of a warning that names the user's line, for who calls this and `warnings.warn`."""
    frame: FrameType | None = sys._getframe(1)
    level = 1
    while frame is not None:
        if owner_of_file(frame.f_code.co_filename)[0] == "user":
            return level
        frame, level = frame.f_back, level + 1
    return 1
