"""Find the code that runs when a callable is called, behind torch.compile, partials, methods and decorators.

A callable is a chain of layers: the callable itself, the callable that it wraps, and so on. The chain ends at a plain
function, a `torch.nn.Module`, a class, a callable object or code that is not Python. Features need different parts of it:

- torch's cache belongs to the code object of the frame that Dynamo compiles: the layer behind torch.compile (`original`);
- a report shows the line that the user wrote: the last layer, behind decorators (`function`, `through`);
- a search for the modules that a callable uses looks at every layer (`layers`).

Attributes of user objects, except a module's `forward`, are read without running their properties and `__getattr__`.

A wrapper from torch.compiler.disable has the same attributes as one from torch.compile, and counts as compiled.

Torch: `_dynamo.eval_frame.innermost_fn` and the attributes `_torchdynamo_orig_callable`, `OptimizedModule._orig_mod` and
`Module._compiled_call_impl`.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from types import CodeType, FunctionType, MethodType
from typing import Any, Literal, NamedTuple

Wrapper = Literal["compiled", "partial", "method", "descriptor", "decorator"]

_MAX_LAYERS = 100  # a chain may be endless, if each wrapper creates the next one


class Layer(NamedTuple):
    """One callable in a chain of wrappers, and how it wraps the next."""

    value: Any
    wraps_by: Wrapper | None  # how `value` leads to the next layer; None for the last


@dataclass(frozen=True, slots=True)
class Unwrapped:
    """The result of `unwrap`: a callable's wrappers, the module that it calls, and the compiled function that it runs.

    Attributes:
        target: The callable that was passed to `unwrap`.
        layers: The callable and everything it wraps, outermost first; never empty.
        original: The callable without its outer wrappers from torch.compile: the callable that Dynamo compiles. For an
            `OptimizedModule`, the bound `forward`, as in torch; a method whose function is compiled remains a method.
        module: The `torch.nn.Module` that is called, without the `OptimizedModule` around it; None if it is not a module.
        compiled: The compiled function that a call of the target runs; None if the target itself is not compiled, even if it
            calls compiled functions. For a module: the `forward` of an `OptimizedModule`, or what `Module.compile` stored.
    """

    target: Any
    layers: tuple[Layer, ...]
    original: Any
    module: Any | None
    compiled: Any | None

    @property
    def is_compiled(self) -> bool:
        return self.compiled is not None

    @property
    def bound_self(self) -> Any | None:
        """The object to which the target is bound if it is a method; None for everything else."""
        return self.target.__self__ if type(self.target) is MethodType else None

    @property
    def function(self) -> FunctionType | None:
        """The Python function inside all wrappers (for a module, inside its `forward`); None for a class or C code."""
        unwrapped = self
        while unwrapped.module is not None:
            unwrapped = unwrap(unwrapped.module.forward)
        return function_of(unwrapped.layers[-1].value)

    @property
    def code(self) -> CodeType | None:
        """The code object of the Python function inside all wrappers (`function`); None if there is none."""
        return None if self.function is None else self.function.__code__

    def through(self, *wrappers: Wrapper) -> Any:
        """Strip the outer wrappers of these kinds, such as "partial" or "method"; return the callable that they wrap."""
        return next(layer.value for layer in self.layers if layer.wraps_by not in wrappers)


def unwrap(target: Any) -> Unwrapped:
    """Resolve a callable: find what it wraps, whether it is compiled, and which code runs.

    No code of the user runs. Accepts any object: the result for an object that is not callable has one layer and no function.
    """
    layers = tuple(_layers(target))
    module = layers[1].value if _is_optimized_module(target) else target if _is_module(target) else None
    return Unwrapped(target, layers, _original(target), module, _compiled(target, module))


def function_of(value: Any) -> FunctionType | None:
    """Return the Python function that a call of `value` runs first: for a decorated function, the wrapper.

    None for partials, modules and C code, and for a class unless its metaclass has a `__call__` in Python.
    """
    kind = type(value)
    if kind is FunctionType:
        return value
    if kind is MethodType:
        return function_of(value.__func__)
    if issubclass(kind, partial) or _is_module(value):
        return None
    call = next((vars(base)["__call__"] for base in kind.__mro__ if "__call__" in vars(base)), None)
    return call if type(call) is FunctionType else None


def code_of(fn: Any) -> CodeType | None:
    """Return the code object of a Python function or method; None for anything else."""
    code = getattr(fn.__func__ if isinstance(fn, MethodType) else fn, "__code__", None)
    return code if isinstance(code, CodeType) else None


def _layers(target: Any) -> Iterator[Layer]:
    value, seen = target, set[int]()
    while True:
        seen.add(id(value))
        wrapper, inner = _step(value)
        if inner is None or id(inner) in seen or len(seen) == _MAX_LAYERS:
            yield Layer(value, None)
            return
        yield Layer(value, wrapper)
        value = inner


def _step(value: Any) -> tuple[Wrapper, Any]:
    """Return what kind of wrapper `value` is, and the callable that it directly wraps (None if it wraps none)."""
    kind = type(value)
    if issubclass(kind, partial):
        return "partial", value.func
    if kind is MethodType:
        return "method", value.__func__
    if issubclass(kind, (staticmethod, classmethod)):
        return "descriptor", value.__func__
    if _is_optimized_module(value):
        return "compiled", value._orig_mod
    if kind is FunctionType:
        original = _original(value)
        return ("compiled", original) if original is not value else ("decorator", vars(value).get("__wrapped__"))
    return "decorator", inspect.getattr_static(value, "__wrapped__", None)


def _original(value: Any) -> Any:
    if type(value) is MethodType:
        inner = _original(value.__func__)
        return value if inner is value.__func__ else MethodType(inner, value.__self__)
    marks = vars(value) if type(value) is FunctionType or _is_optimized_module(value) else {}
    if "_torchdynamo_orig_callable" not in marks:
        return value
    from torch._dynamo.eval_frame import innermost_fn

    return innermost_fn(value)  # not the attribute: `functools.wraps` copies it to functions that are not compiled


def _compiled(target: Any, module: Any | None) -> Any | None:
    if type(target) is MethodType:
        return _compiled(target.__func__, None)
    if module is None:
        return target if _original(target) is not target else None
    in_place = vars(target).get("_compiled_call_impl")
    if module is target:
        return in_place
    return in_place or vars(target).get("forward", target)


def _is_module(value: Any) -> bool:
    torch = sys.modules.get("torch")  # if torch is not imported, there are no modules
    return torch is not None and issubclass(type(value), torch.nn.Module)


def _is_optimized_module(value: Any) -> bool:
    eval_frame = sys.modules.get("torch._dynamo.eval_frame")  # not imported here: that takes a second
    return eval_frame is not None and issubclass(type(value), eval_frame.OptimizedModule)
