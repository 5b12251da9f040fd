"""Find objects that an uncaptured run of a function would advance and nothing could restore: iterators, random generators.

The search comes before the run: after it, they would have advanced.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator
from io import IOBase
from typing import Any
from weakref import ProxyTypes

from torch.utils.data import DataLoader

from dynx.cudagraphs._search.hidden_state import reader_of_state
from dynx.cudagraphs._search.search import Search

_STREAMS: tuple[type, ...] = (IOBase, *ProxyTypes)  # text files are iterators of their lines


def advanced_by(function: Callable[..., Any], *, is_checked: bool) -> str:
    """Return the type of an iterator, data loader or random number generator that a function refers to; "" if there is none.

    Args:
        function: The function, which is searched.
        is_checked: State is checked in each call: a function that advances an object whose state can be read is not recorded,
            so such objects are ignored.
    """
    for value in Search(function).objects:
        if _advances(value) and not (is_checked and reader_of_state(value) is not None):
            return type(value).__name__
    return ""


def _advances(value: Any) -> bool:
    kind = type(value)
    if issubclass(kind, (DataLoader, random.Random)):
        return value is not getattr(random.random, "__self__", None)  # the state of the global generator is restored
    if issubclass(kind, Iterator):
        return not issubclass(kind, _STREAMS)
    numpy = sys.modules.get("numpy")
    if numpy is None or not issubclass(kind, (numpy.random.Generator, numpy.random.RandomState)):
        return False
    return value is not getattr(numpy.random.rand, "__self__", None)
