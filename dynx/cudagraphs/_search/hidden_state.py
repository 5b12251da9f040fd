"""Read state that objects do not keep in attributes: of random number generators, iterators, arrays, `os.environ`."""

from __future__ import annotations

import ctypes
import os
import random
import sys
from array import array
from collections.abc import Callable
from contextvars import ContextVar
from functools import _lru_cache_wrapper
from io import BytesIO, IOBase, StringIO
from itertools import count
from queue import SimpleQueue
from types import FunctionType, GeneratorType
from typing import Any
from weakref import ProxyTypes

from dynx.cudagraphs._search.identity import PLAIN

Values = tuple[Any, ...]

_MAX_BYTES, _MAX_OBJECTS = 1 << 16, 100  # of an array whose contents are compared
_ENVIRONMENT = type(os.environ)
_numbers = count()


def reader_of_state(value: Any) -> Callable[[], Values] | None:
    """Return a function that reads state outside of attributes, such as an iterator's position; None if none is compared."""
    kind = type(value)
    if kind is _ENVIRONMENT or value is os.getenv:
        variables = os.environ._data  # type: ignore[attr-defined]  # as bytes: decoding all of them takes longer
        return lambda: (*variables, *variables.values())
    if value is generator_of_python():
        return None  # other code draws from it too: see `PythonDraws`
    if issubclass(kind, ContextVar):
        return lambda: (value.get(None),)
    if issubclass(kind, (bytearray, array)):
        return (lambda: (bytes(value),)) if len(value) <= _MAX_BYTES else None
    if issubclass(kind, (StringIO, BytesIO)):
        return lambda: (value.closed or value.tell(),)
    if issubclass(kind, ctypes._SimpleCData):
        return lambda: (value.value,)
    if issubclass(kind, _lru_cache_wrapper):
        return lambda: (value.cache_info().currsize > 0, value.__wrapped__)  # `cache_clear` empties it
    if kind is SimpleQueue:
        return lambda: (value.qsize(),)
    if issubclass(kind, random.Random):
        return lambda: (hash(value.getstate()),)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        if issubclass(kind, numpy.ndarray):
            return _reader_of_array(value)
        if issubclass(kind, (numpy.random.Generator, numpy.random.RandomState)):
            generator = getattr(value, "bit_generator", None) or value._bit_generator
            return None if value is generator_of_numpy() else lambda: (repr(generator.state),)  # as for that of Python
    if issubclass(kind, GeneratorType):
        return lambda: (_position_of(value),)
    if hasattr(kind, "__next__") and type(kind.__next__) is not FunctionType and not issubclass(kind, (IOBase, *ProxyTypes)):
        return lambda: (_position_of_iterator(value),)
    return None


def generator_of_python() -> Any:
    """Return the generator behind the functions of `random`; None if they were replaced."""
    return getattr(random.random, "__self__", None)


def generator_of_numpy() -> Any:
    """Return the generator behind the functions of `numpy.random`; None if NumPy is not imported, or they were replaced."""
    numpy = sys.modules.get("numpy")
    return None if numpy is None else getattr(numpy.random.rand, "__self__", None)


def _reader_of_array(values: Any) -> Callable[[], Values] | None:
    if values.dtype.hasobject:
        return (lambda: (str(values.shape), *values.flat)) if values.size <= _MAX_OBJECTS else None
    return (lambda: (values.tobytes(), str(values.shape))) if values.nbytes <= _MAX_BYTES else None


def _position_of(generator: Any) -> str:
    """Return the position and local variables of a Python generator, as text: numbers and text by value, others by id."""
    frame, inner = generator.gi_frame, generator.gi_yieldfrom
    if frame is None:
        return "it has ended"
    values = {name: value if type(value) in PLAIN else id(value) for name, value in frame.f_locals.items()}
    within = _position_of(inner) if type(inner) is GeneratorType else "" if inner is None else _position_of_iterator(inner)
    return f"at {frame.f_lasti} with {values} {within}"


def _position_of_iterator(iterator: Any) -> str:
    """Return the state of a built-in iterator as text; if unreadable, a new text in each call, so that it counts as changed."""
    if isinstance(iterator, count):
        return repr(iterator)
    return str(iterator.__length_hint__() if hasattr(iterator, "__length_hint__") else next(_numbers))
