"""Hash the functions and options of codecs and rules; equal rules have the same hash in every process."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache, partial
from pathlib import Path
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

import torch

from dynx._bytecode.cells import is_filled
from dynx._bytecode.digest import code_digest
from dynx._bytecode.globals_read import globals_read
from dynx.errors import UsageError

_PLAIN = (bool, int, float, complex, str, bytes, type(None), type(Ellipsis), torch.dtype, torch.device, torch.Size)
_OPERATORS = ("method_descriptor", "wrapper_descriptor", "getset_descriptor", "_OpNamespace", "_Ops", "ufunc")  # their classes
_FOLDER = Path(__file__).parent
_SIZE = 16  # bytes


def digest(*values: Any) -> str:
    """Return a hash of values. A function is hashed by its code, defaults, closure and the globals it reads, recursively.

    The hash depends on the version of torch, and on the source of `dynx.saved` and `dynx._fx`, which edit the graphs.

    Raises:
        UsageError: A value cannot be compared between processes, such as a list or tensor that a function closes over.
    """
    reader = _Reader()
    for value in values:
        reader.add(value, "a codec")
    reader.hash.update(own_source())
    reader.hash.update(str(torch.__version__).encode())
    return reader.hash.hexdigest()


@cache
def own_source() -> bytes:
    """Return a hash of the source files of `dynx.saved` and `dynx._fx`, which edit the graphs."""
    result = hashlib.blake2b(digest_size=_SIZE)
    for folder in (_FOLDER, _FOLDER.parent / "_fx"):
        for file in sorted(folder.rglob("*.py")):
            result.update(file.read_bytes())
    return result.digest()


class _Reader:
    """Adds values to a hash, recursively; tracks the values that are being read, since a value may contain itself."""

    def __init__(self) -> None:
        self.hash = hashlib.blake2b(digest_size=_SIZE)
        self._reading: dict[int, int] = {}  # depth by id

    def add(self, value: Any, what: str) -> None:
        """Add a value to the hash; `what` is its description for the error message of a value that cannot be hashed."""
        if isinstance(value, _PLAIN) and not isinstance(value, Enum):
            return self._text(type(value).__name__, repr(value))
        if id(value) in self._reading:
            return self._text("refers back", str(self._reading[id(value)]))
        self._reading[id(value)] = len(self._reading)
        self._text("begin", type(value).__name__)
        for tag, part in self._parts(value, what):
            self._text("part", tag)
            self.add(part, f"{what}: {tag}")
        self._text("end")
        del self._reading[id(value)]
        return None

    def _parts(self, value: Any, what: str) -> Iterator[tuple[str, Any]]:
        """Yield the parts of a value that are hashed, such as the code and closure of a function, each with a name."""
        if isinstance(value, Enum):
            yield str(value), value.value
        elif isinstance(value, tuple):
            yield from ((str(index), item) for index, item in enumerate(value))
        elif isinstance(value, frozenset):
            yield "frozenset", tuple(sorted(digest(item) for item in value))
        elif isinstance(value, partial):
            yield "function", value.func
            yield "arguments", tuple(value.args)
            yield "options", tuple(sorted(value.keywords.items()))
        elif isinstance(value, MethodType):
            yield "method", value.__func__
            yield "object", value.__self__
        elif isinstance(value, FunctionType):
            yield from self._function(value)
        elif is_dataclass(value) and not isinstance(value, type) and value.__dataclass_params__.frozen:  # type: ignore[attr-defined]
            yield "class", type(value)
            yield from ((field.name, getattr(value, field.name)) for field in fields(value))
        elif isinstance(value, (type, ModuleType, BuiltinFunctionType)) or _is_operator(value):
            yield "name", _name_of(value)
        else:
            raise UsageError(
                f"{what} is a {type(value).__qualname__}, for which dynx has no hash that is equal in every process\n"
                "  pass cache_hash=, a text that you change whenever you change the codec"
            )

    def _function(self, function: FunctionType) -> Iterator[tuple[str, Any]]:
        if (function.__module__ or "").partition(".")[0] == "torch":
            yield "name", _name_of(function)
            return
        yield "code", code_digest(function.__code__)
        yield "defaults", tuple(function.__defaults__ or ())
        yield "keyword defaults", tuple(sorted((function.__kwdefaults__ or {}).items()))
        cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
        for name, cell in cells:
            yield f"{name!r}, which {function.__qualname__} closes over", cell.cell_contents if is_filled(cell) else None
        for path, read in sorted(globals_read(function).items()):
            yield f"{'.'.join(path)!r}, which {function.__qualname__} reads", read

    def _text(self, *texts: str) -> None:
        for text in texts:
            data = text.encode(errors="surrogatepass")
            self.hash.update(b"%d:" % len(data) + data)


def _is_operator(value: Any) -> bool:
    return isinstance(value, (torch._ops.OpOverload, torch._ops.OpOverloadPacket)) or type(value).__name__ in _OPERATORS


def _name_of(value: Any) -> str:
    name = getattr(value, "__qualname__", None) or getattr(value, "__name__", str(value))
    return f"{getattr(value, '__module__', '')}.{name}"
