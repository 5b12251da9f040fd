"""Note the module in whose forward pass an autograd node is made, beside the stack that the anomaly mode of autograd keeps.

Torch: for each node the anomaly mode calls `torch.fx.traceback.format_stack`, and keeps the strings that it returns. An entry
with a number is added to them. The graphs that torch traces for a compiler get none: their nodes have a stack of their own.
Each call of a module runs `Module._call_impl`: the variables of the program's own functions are not read.
"""

from __future__ import annotations

import itertools
import re
import sys
import weakref
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any

import torch
from torch.fx import traceback

from dynx._torch import hooks
from dynx._torch.capabilities import hook_point
from dynx._torch.compilation.wrappers import is_module_call_code

_ENTRY = re.compile(r"  In module (\d+), ")
_numbers = itertools.count()
_modules: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()  # by number
_known: dict[int, int] = {}  # the number of a module by its id; another module may have had that id before


def noting_modules() -> hooks.Wrapping:
    """Add an entry for the module to the stack of each node that is made in anomaly mode; returns a handle, with `remove()`."""
    from torch._dynamo.eval_frame import skip_code

    def noting(original: Callable[..., Any]) -> Callable[..., Any]:
        def format_stack() -> Any:
            stack = original()
            module = _innermost(sys._getframe(1)) if not traceback.has_preserved_node_meta() else None
            return stack if module is None else [*stack, f"  In module {_number(module)}, {type(module).__name__}\n"]

        return format_stack

    for code in hooks.codes_of_a_call():  # `backward()` in a compiled function runs where Dynamo compiles what is called
        skip_code(code)
    return hooks.wrap(hook_point("node_stack"), lambda original: torch.compiler.disable(noting(original)))


def module_of(stack: Sequence[str]) -> Any:
    """Return the module that an entry of a stack tells; None if there is none, or if it is gone."""
    entry = _ENTRY.match(stack[-1]) if stack else None
    return _modules.get(int(entry[1])) if entry is not None else None


def _number(module: Any) -> int:
    number = _known.get(id(module))
    if number is None or _modules.get(number) is not module:
        number = _known[id(module)] = next(_numbers)
        _modules[number] = module
    return number


def _innermost(frame: FrameType | None) -> Any:
    """Return the innermost module that is being called."""
    while frame is not None:
        if is_module_call_code(frame.f_code):
            return frame.f_locals["self"]
        frame = frame.f_back
    return None
