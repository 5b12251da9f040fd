"""Find objects that prevent `Config(verify=n)`: iterators and random number generators that a function would advance.

Verification runs the function once more, uncaptured, and nothing restores such objects afterwards. The objects are found by
the names in the function's code, without running it.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator
from io import IOBase
from typing import Any
from weakref import ProxyTypes

from torch.utils.data import DataLoader

from dynx.cudagraphs._search.hidden_state import generator_of_numpy, generator_of_python, reader_of_state
from dynx.cudagraphs._search.search import Search

_STREAMS: tuple[type, ...] = (IOBase, *ProxyTypes)  # text files are iterators of their lines


def advanced_by(function: Callable[..., Any], *, is_checked: bool) -> str:
    """Return the type of an iterator, data loader or random number generator that a function refers to; "" if there is none.

    `is_checked` is whether the state of objects is compared before each replay. If so, objects whose state can be read are
    ignored: a function that advances one of them is not recorded.
    """
    for value in Search(function).objects:
        if _advances(value) and not (is_checked and reader_of_state(value) is not None):
            return type(value).__name__
    return ""


def _advances(value: Any) -> bool:
    kind, numpy = type(value), sys.modules.get("numpy")
    of_numpy = () if numpy is None else (numpy.random.Generator, numpy.random.RandomState)
    if issubclass(kind, (DataLoader, random.Random, *of_numpy)):
        return value is not generator_of_python() and value is not generator_of_numpy()  # the states of these are restored
    return issubclass(kind, Iterator) and not issubclass(kind, _STREAMS)
