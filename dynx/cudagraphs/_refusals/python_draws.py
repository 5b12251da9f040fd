"""Detect that a function draws random numbers of Python or NumPy: a replay draws none, and reuses those of the capture.

Other threads, such as those of data loaders, draw such numbers too. So if numbers were drawn during a call, the function is
only suspected; in its next call, a profile function (`sys.setprofile`) shows whether this thread draws numbers, and where.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from traceback import walk_stack
from types import CodeType, FrameType
from typing import Any

from dynx._reading.names import names_in
from dynx._reading.user_location import user_location
from dynx._torch.tracing.stack import RawFrame
from dynx.cudagraphs._search.hidden_state import generator_of_numpy, generator_of_python


class PythonDraws:
    """A detector of calls of a function that draw random numbers of Python or NumPy.

    Attributes:
        is_suspected: Whether numbers were drawn during the last `run`, perhaps by another thread. False if a profile function
            watched that run: then it is known whether this thread drew them.
    """

    def __init__(self) -> None:
        self.is_suspected = False
        self._is_watched = False

    def run(self, function: Callable[[], Any]) -> tuple[Any, str]:
        """Call the function; return its result, and a text that says which random numbers it draws, and where.

        The text is "" if the function is not known to draw random numbers of Python or NumPy.
        """
        self.is_suspected, before, spy = False, _states(), _Spy()
        if not self._is_watched or not spy.can_watch:
            result = function()
            self.is_suspected = self._is_watched = _states() != before
            is_known = self.is_suspected and not spy.can_watch
            return result, "random numbers of Python or NumPy" if is_known else ""
        with spy:
            result = function()
        return result, spy.found


class _Spy:
    """A context manager with a profile function that notes where this thread draws random numbers of Python or NumPy.

    It sees calls of the methods of Python's generator, but not of NumPy's. For NumPy, it notes the first function whose code
    names such a method, such as `rand`. The note is ignored if the state of NumPy's generator is unchanged at the end.
    """

    def __init__(self) -> None:
        self.can_watch = sys.getprofile() is None
        self._python, self._numpy = generator_of_python(), generator_of_numpy()
        self._names = frozenset() if self._numpy is None else frozenset(dir(sys.modules["numpy"].random))
        self._of_python = self._of_numpy = ""
        self._seen = set[CodeType]()

    def __enter__(self) -> None:
        self._before = _states()
        sys.setprofile(self._on_event)

    def __exit__(self, *error: object) -> None:
        sys.setprofile(None)

    @property
    def found(self) -> str:
        """A text that says which numbers were drawn and where; "" if none were drawn."""
        return self._of_python or (self._of_numpy if _states()[1] != self._before[1] else "")

    def _on_event(self, frame: FrameType, event: str, called: Any) -> None:
        if event == "c_call":
            if not self._of_python and getattr(called, "__self__", None) is self._python:
                self._of_python = f"random numbers of Python's random{place_of(frame)}"
        elif event == "call" and (code := frame.f_code) not in self._seen:
            self._seen.add(code)
            if not self._of_python and code.co_filename == random.__file__ and frame.f_locals.get("self") is self._python:
                self._of_python = f"random numbers of Python's random{place_of(frame)}"  # `gauss` draws in every second call
            if not self._of_numpy and self._draws_from_numpy(frame):
                self._of_numpy = f"random numbers of NumPy{place_of(frame)}"

    def _draws_from_numpy(self, frame: FrameType) -> bool:
        names = names_in(frame.f_code)
        values = [*map(frame.f_globals.get, names.variables), *frame.f_locals.values()]  # locals include closure variables
        if any(getattr(value, "__self__", None) is self._numpy for value in values):
            return self._numpy is not None
        is_named = any(getattr(value, "__name__", None) in ("numpy", "numpy.random") for value in values)
        is_imported = any(statement.name.startswith("numpy") for statement in names.imports)
        return (is_named or is_imported) and not self._names.isdisjoint(names.attributes)


def place_of(frame: FrameType) -> str:
    """Return " at " and the line of the user's code that a frame runs or was called from; "" if there is none."""
    frames = [RawFrame(each.f_code.co_filename, line, each.f_code.co_qualname) for each, line in walk_stack(frame)]
    location = user_location(frames[::-1])
    return f" at {location}" if location is not None else ""


def _states() -> tuple[Any, ...]:
    generator = generator_of_numpy()
    return random.getstate(), None if generator is None else repr(generator.get_state(legacy=False))
