"""The state of objects that have no attributes to compare: random number generators, iterators, arrays, the environment."""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Callable
from io import IOBase
from itertools import count
from types import FunctionType, GeneratorType
from typing import Any
from weakref import ProxyTypes

from dynx.cudagraphs._state.identity import PLAIN

Values = tuple[Any, ...]

_MAX_BYTES = 1 << 16  # of an array whose contents are compared
_ENVIRONMENT = type(os.environ)
_numbers = count()


def reader_of_state(value: Any) -> Callable[[], Values] | None:
    """Return a function that reads the state of an object as numbers and text; None for an object without hidden state."""
    kind = type(value)
    if kind is _ENVIRONMENT or value is os.getenv:
        variables = os.environ._data  # type: ignore[attr-defined]  # as bytes: decoding all of them takes longer
        return lambda: (*variables, *variables.values())
    if value is getattr(random.random, "__self__", None):
        return None  # other code draws from it too: see `PythonDraws`
    if issubclass(kind, random.Random):
        return lambda: (hash(value.getstate()),)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        if issubclass(kind, numpy.ndarray):
            return _reader_of_array(value)
        if issubclass(kind, (numpy.random.Generator, numpy.random.RandomState)):
            generator = getattr(value, "bit_generator", None) or value._bit_generator
            is_global = value is getattr(numpy.random.rand, "__self__", None)  # as Python's: other code draws from it too
            return None if is_global else lambda: (repr(generator.state),)
    if issubclass(kind, GeneratorType):
        return lambda: (_position_of(value),)
    if hasattr(kind, "__next__") and type(kind.__next__) is not FunctionType and not issubclass(kind, (IOBase, *ProxyTypes)):
        return lambda: (_position_of_iterator(value),)
    return None


def _reader_of_array(array: Any) -> Callable[[], Values] | None:
    if array.nbytes > _MAX_BYTES or array.dtype.hasobject:
        return None
    return lambda: (array.tobytes(), str(array.shape))


def _position_of(generator: Any) -> str:
    """Return where a generator waits, with its local variables: numbers and text by value, others by identity."""
    frame, inner = generator.gi_frame, generator.gi_yieldfrom
    if frame is None:
        return "it has ended"
    values = {name: value if type(value) in PLAIN else id(value) for name, value in frame.f_locals.items()}
    within = _position_of(inner) if type(inner) is GeneratorType else "" if inner is None else _position_of_iterator(inner)
    return f"at {frame.f_lasti} with {values} {within}"


def _position_of_iterator(iterator: Any) -> str:
    """Return the state of an iterator of Python as text; another one each time where it does not tell."""
    if isinstance(iterator, count):
        return repr(iterator)
    return str(iterator.__length_hint__() if hasattr(iterator, "__length_hint__") else next(_numbers))
