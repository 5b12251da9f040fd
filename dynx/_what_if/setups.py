"""How a fix changes a trace: settings of torch, and other values of the function's local variables."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from dynx._torch.compilation.experiments import mark_dynamic
from dynx._torch.retracing import tensors
from dynx._torch.retracing.other_code import OtherCode
from dynx._torch.retracing.retrace import Frame
from dynx.records.fix import Fix, Mark

_DYNAMO = "torch._dynamo.config"
_LIMITS = ("recompile_limit", "accumulated_recompile_limit", "cache_size_limit", "accumulated_cache_size_limit")
_DYNAMIC = {  # torch.compile(dynamic=...) sets these: `eval_frame.make_set_enable_dynamic`
    True: {"assume_static_by_default": False, "automatic_dynamic_shapes": True},
    None: {"assume_static_by_default": True, "automatic_dynamic_shapes": True},
}
_MOST_ITEMS = 10_000  # of a container in which tensors are replaced
_DEEPEST = 4  # containers in containers

Variables = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Setup:
    """How a fix changes a trace.

    Attributes:
        settings: Returns the values of torch's settings, by the name of the configuration module and of the setting.
        change: Returns the local variables of a call as they would be with the fix; None if they have not the expected values.
        code: The code of a function as it would be with the fix.
        written: The new lines of the source text.
    """

    settings: Callable[[], Mapping[tuple[str, str], Any]] = dict
    change: Callable[[Variables], Variables | None] = lambda variables: variables
    code: OtherCode | None = None
    written: str = ""

    @property
    def is_possible(self) -> bool:
        """Whether the installed torch has the settings."""
        return all(hasattr(import_module(module), name) for module, name in self.settings())

    def frame(self, frame: Frame) -> Frame:
        """Return the frame to trace for a frame of the program."""
        return frame if self.code is None else self.code.of_frame(frame)

    @contextmanager
    def in_effect(self) -> Iterator[None]:
        """Set the settings, and let traces for dynx read the other code, inside this context."""
        with ExitStack() as stack:
            if self.code is not None:
                stack.enter_context(self.code.in_effect())
            for (module, name), value in self.settings().items():
                stack.enter_context(import_module(module).patch(**{name: value}))
            yield


def setup_of(fix: Fix) -> Setup | None:
    """Return how a fix changes a trace; None if a trace cannot show what it does, or if this torch has no such setting."""
    setup = _setup_of(fix)
    return setup if setup is not None and setup.is_possible else None


def joined(setups: Sequence[Setup]) -> Setup | None:
    """Return how several fixes change a trace; None if they need other values of one setting."""
    settings: dict[tuple[str, str], Any] = {}
    for setup in setups:
        for name, value in setup.settings().items():
            if settings.setdefault(name, value) != value:
                return None

    def change(variables: Variables) -> Variables | None:
        changed: Variables | None = variables
        for setup in setups:
            changed = setup.change(changed) if changed is not None else None
        return changed

    return Setup(lambda: settings, change)


def _setup_of(fix: Fix) -> Setup | None:
    match fix.kind:
        case "option":
            name, _, value = fix.code.partition("=")
            if name == "dynamic":
                settings = {(_DYNAMO, setting): on for setting, on in _DYNAMIC[ast.literal_eval(value)].items()}
                return Setup(lambda: settings)
        case "statement":
            return _of_statement(fix.code)
        case "mark":
            return Setup(change=lambda variables: _marked(variables, fix))
        case "rewrite" if fix.rewrite == "tensor argument" and fix.marks:
            return Setup(change=lambda variables: _as_tensor(variables, fix.marks[0]))
    return None


def _of_statement(code: str) -> Setup | None:
    """Return the setup for a statement that assigns a setting of torch, or adds a function to a setting that is a set."""
    last = ast.parse(code).body[-1]
    if isinstance(last, ast.Assign) and isinstance(last.targets[0], ast.Attribute):
        module, name = _split(last.targets[0])
        value = ast.literal_eval(last.value)
        return None if name in _LIMITS else Setup(lambda: {(module, name): value})
    if isinstance(last, ast.Expr) and isinstance(last.value, ast.Call) and isinstance(last.value.func, ast.Attribute):
        added = _named(ast.unparse(last.value.args[0]))
        if last.value.func.attr == "add" and isinstance(last.value.func.value, ast.Attribute):
            module, name = _split(last.value.func.value)
            return Setup(lambda: {(module, name): {*getattr(import_module(module), name, ()), added}})
    return None


def _split(node: ast.Attribute) -> tuple[str, str]:
    return ast.unparse(node.value), node.attr


def _named(path: str) -> Any:
    module, _, name = path.rpartition(".")
    return getattr(import_module(module) if module else builtins, name)


def _marked(variables: Variables, fix: Fix) -> Variables | None:
    twins: dict[int, Any] = {}
    for mark in fix.marks:
        tensor = value_at(mark.source, variables)
        if not tensors.is_plain(tensor) or mark.dim >= tensor.dim():
            return None
        twin = twins.setdefault(id(tensor), tensors.twin(tensor))
        mark_dynamic(twin, mark.dim, is_required=fix.may_fail)
    return {name: replaced(value, twins) for name, value in variables.items()}


def _as_tensor(variables: Variables, mark: Mark) -> Variables | None:
    import torch

    name, value = mark.source.removeprefix("L['").removesuffix("']"), value_at(mark.source, variables)
    if type(value) not in (int, float) or name not in variables:
        return None
    return {**variables, name: torch.tensor(value)}


def value_at(source: str, variables: Variables) -> Any:
    """Return the value of an expression such as `batch['ids']`; None if it has more than variables and items of containers."""
    try:
        return _evaluate(ast.parse(source, mode="eval").body, variables)
    except (SyntaxError, LookupError, TypeError):
        return None


def _evaluate(node: ast.expr, variables: Variables) -> Any:
    if isinstance(node, ast.Name):
        return variables if node.id == "L" and "L" not in variables else variables[node.id]
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        container = _evaluate(node.value, variables)
        if type(container) in (list, tuple, dict):  # subclasses may run code of the user
            return container[node.slice.value]
    raise TypeError(f"not a variable or an item: {ast.unparse(node)}")


def replaced(value: Any, twins: Mapping[int, Any], depth: int = 0) -> Any:
    """Return a value with other tensors in place of those whose `id` is in `twins`; containers on the way are copied."""
    if id(value) in twins:
        return twins[id(value)]
    if type(value) not in (list, tuple, dict) or len(value) > _MOST_ITEMS or depth > _DEEPEST:
        return value
    items = value.values() if type(value) is dict else value
    new = [replaced(item, twins, depth + 1) for item in items]
    if all(one is other for one, other in zip(new, items, strict=True)):
        return value
    return dict(zip(value, new, strict=True)) if type(value) is dict else type(value)(new)
