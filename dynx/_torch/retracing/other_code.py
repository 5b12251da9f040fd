"""Let a trace of this thread read other code for one function of the program; the function itself does not change.

Torch: Dynamo reads the code of a function that it inlines with `UserFunctionVariable.get_code`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from types import CodeType
from typing import Any

from dynx._torch.capabilities import hook_point
from dynx._torch.hooks import is_retracing, wrap
from dynx._torch.retracing.retrace import Frame


@dataclass(eq=False)
class OtherCode:
    """Code to trace in place of the code of a function, which `old` is equal to; `is_used` says whether a trace met it."""

    old: CodeType
    new: CodeType
    is_used: bool = field(default=False, init=False)

    def of(self, code: CodeType) -> CodeType:
        """Return the code to trace for a function with this code."""
        if code.co_firstlineno != self.old.co_firstlineno or code.co_filename != self.old.co_filename or code != self.old:
            return code
        self.is_used = True
        return self.new

    def of_frame(self, frame: Frame) -> Frame:
        """Return the frame to trace for a frame."""
        return replace(frame, code=self.of(frame.code))

    @contextmanager
    def in_effect(self) -> Iterator[None]:
        """Let traces for dynx read the other code inside this context."""

        def reading(original: Callable[..., Any]) -> Callable[..., Any]:
            return lambda *args: self.of(original(*args)) if is_retracing() else original(*args)

        with wrap(hook_point("code_of_function"), reading):
            yield
