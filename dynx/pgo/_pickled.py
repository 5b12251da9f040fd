"""Read the profile that torch stores as a pickle, without running any code that the pickle names.

torch 2.11, 2.13 and 2.15 write `pickle.dumps(pgo._CODE_STATE)` in the same format to `code_state_<job>_<rank>_<tag>.pkl`, and
read it with `pickle.load`, which executes any code that the file names.
"""

from __future__ import annotations

import io
import pickle
import pickletools
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

MAX_BYTES = 64 * 2**20  # of a profile; a function takes about a kilobyte

_CLASSES = ("CodeId", "CodeState", "FrameStateSizeEntry", "InferStride", "AutoDynamic", "AutoUnset")
# the opcodes of torch's profiles, for every pickle protocol from 2 on
_OPCODES = """
    PROTO FRAME STOP MARK POP NONE NEWTRUE NEWFALSE BININT BININT1 BININT2 LONG1 BINFLOAT BINUNICODE SHORT_BINUNICODE
    EMPTY_TUPLE TUPLE1 TUPLE2 TUPLE3 TUPLE EMPTY_DICT SETITEM SETITEMS GLOBAL STACK_GLOBAL REDUCE NEWOBJ BUILD
    MEMOIZE BINGET LONG_BINGET BINPUT LONG_BINPUT
"""


class InvalidProfile(ValueError):
    """Raised for data that is not a profile; the message says what is wrong and where. No part of the data was executed."""


def read(data: bytes) -> Mapping[Any, Any]:
    """Return the dict in a pickled profile, with empty classes of the same names in place of the classes of torch.

    Raises InvalidProfile if the data are truncated, too large, or contain anything that torch does not write into a profile.
    """
    if len(data) > MAX_BYTES:
        raise InvalidProfile(f"the file is too large: dynx reads at most {MAX_BYTES} bytes")
    _check_opcodes(data)
    try:
        state = _Reader(io.BytesIO(data)).load()
    except InvalidProfile:
        raise
    except Exception as error:  # noqa: BLE001 - a damaged pickle raises whatever its opcodes lead to
        raise InvalidProfile(f"the file cannot be unpickled: {type(error).__name__}: {error}") from None
    if not isinstance(state, dict):
        raise InvalidProfile(f"the file contains a {type(state).__name__}, expected a dict from functions to sizes")
    return state


def _check_opcodes(data: bytes) -> None:
    """Raise InvalidProfile for opcodes that torch's profiles do not have, and memo indices that would allocate gigabytes."""
    allowed = frozenset(_OPCODES.split())
    try:
        for count, (opcode, argument, position) in enumerate(pickletools.genops(data), start=1):
            if opcode.name not in allowed:
                raise InvalidProfile(f"byte {position} is the pickle opcode {opcode.name}, which no profile of torch contains")
            if opcode.name in ("BINPUT", "LONG_BINPUT") and isinstance(argument, int) and argument > count:
                raise InvalidProfile(f"the memo index {argument} at byte {position} is too large after {count} pickle opcodes")
    except InvalidProfile:
        raise
    except Exception as error:  # noqa: BLE001 - likewise
        raise InvalidProfile(f"the file is truncated, or not a pickle: {error}") from None


class _Reader(pickle.Unpickler):
    """An unpickler with empty classes instead of torch's; each file gets new ones, since a pickle can set class attributes."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file)
        self._classes: dict[str, Any] = {name: type(name, (_Empty,), {}) for name in _CLASSES}

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("collections", "defaultdict"):
            return defaultdict
        if module == "torch._dynamo.pgo" and name in self._classes:
            return self._classes[name]
        raise InvalidProfile(f"the file refers to {module}.{name}, which torch's profiles do not contain; nothing was executed")


class _Empty:
    def __init__(self, *_: object) -> None:
        """Accept and ignore the arguments of the torch class that is replaced."""
