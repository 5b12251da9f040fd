"""Find the functions of a profile in the current source files."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

from dynx._bytecode.functions import file_hash, function_at, functions_in
from dynx.records.profile import FrameMatch, FrameProfile

_RESUMES = re.compile(r"torch_dynamo_resume_in_(?P<name>.+)_at_\d+$")


def described(frames: Iterable[FrameProfile]) -> Iterator[FrameProfile]:
    """Yield the functions of a profile, with qualified name and source hash added where the source file is unchanged."""
    hash_of = cache(file_hash)
    for frame in frames:
        function = function_at(functions_in(frame.file), _own_name(frame.name), frame.line)
        if function is None or hash_of(frame.file) != frame.file_hash:
            yield frame
        else:
            offset = frame.line - function.line
            yield replace(frame, qualname=function.qualname, source_hash=function.digest, offset=offset)


def matches(frames: Iterable[FrameProfile]) -> Iterator[FrameMatch]:
    """Yield for each frame whether the current source files contain its function."""
    hash_of = cache(file_hash)
    present = cache(lambda file, wanted: _present(file, wanted, hash_of))
    for frame in frames:
        if frame.file.startswith("<"):  # code of `python -c` or exec, which torch identifies by line and name
            yield FrameMatch(frame, "same", frame.file, frame.line)
        elif frame.is_portable:
            file = present(frame.file, frame.file_hash)
            yield _match(frame, file, is_same=file is not None and hash_of(file) == frame.file_hash)
        else:
            yield FrameMatch(frame, "not portable", why="torch hashed its closure, which gives another number in each process")


def _match(frame: FrameProfile, file: str | None, *, is_same: bool) -> FrameMatch:
    if file is None:
        return FrameMatch(frame, "gone", why="no such file")
    if is_same:
        return FrameMatch(frame, "same", file, frame.line)
    name = os.path.basename(file)
    functions = [function for function in functions_in(file) if function.name == _own_name(frame.name)]
    functions.sort(key=lambda function: function.qualname != frame.qualname)  # of equal texts, prefer the same name
    for function in functions:
        if function.digest == frame.source_hash:
            return FrameMatch(frame, "moved", file, function.line + frame.offset, f"{name} has changed, not this function")
    namesakes = (function for function in functions if function.name != "<lambda>" and function.qualname == frame.qualname)
    namesake = next(namesakes, None)
    if namesake is None:
        return FrameMatch(frame, "gone", file, why=f"{name} has no such function now")
    if not frame.offset:
        return FrameMatch(frame, "changed", file, namesake.line, "its text has changed")
    why = f"{namesake.qualname} has changed, so that the line of its graph break is unknown"
    return FrameMatch(frame, "gone", file, why=why)


def is_elsewhere(match: FrameMatch) -> bool:
    """Return whether a function's file was not found. torch identifies files by content: the file may have another path."""
    return match.state == "gone" and match.file is None


def present_frame(match: FrameMatch) -> FrameProfile | None:
    """Return a frame of a profile with the key that its function has in the current source files.

    Return None if the function is gone, or if the hash of its closure, a part of the key, differs in every process. A
    frame whose file was not found is returned unchanged: the file may have another path; torch identifies files by content.
    """
    if match.state == "same" or is_elsewhere(match):
        return match.frame
    if match.file is None or match.line is None:
        return None
    name = match.frame.name
    if name != _own_name(name):
        name = re.sub(r"_at_\d+$", f"_at_{match.line}", name)
    graphs = () if match.state == "changed" else match.frame.graphs  # a changed function has other graphs
    return replace(match.frame, file=match.file, file_hash=file_hash(match.file), line=match.line, name=name, graphs=graphs)


def _own_name(name: str) -> str:
    """Return the name of the user's function: `forward` for `torch_dynamo_resume_in_forward_at_12`."""
    resumes = _RESUMES.match(name)
    return name if resumes is None else _own_name(resumes["name"])


def _present(file: str, wanted: str, hash_of: Callable[[str], str]) -> str | None:
    """Return the path `file` if it exists, else the path of a corresponding file below the working directory or `sys.path`.

    A corresponding file has the same name, and the same folder name or the content hash `wanted`. None if there is no file.
    """
    if os.path.isfile(file):
        return file
    parts = Path(file).parts[1:]
    for start in range(len(parts)):
        for folder in (os.getcwd(), *sys.path):
            candidate = os.path.join(folder, *parts[start:])
            if os.path.isfile(candidate) and (start < len(parts) - 1 or hash_of(candidate) == wanted):
                return candidate
    return None
