"""The guards of a cache entry, as the tree in which torch checks them.

Torch: `GuardManager`, `DictGuardManager` and `LeafGuard` of `torch._C._dynamo.guards`; alike in 2.11, 2.13 and 2.15.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple


class RawGuard(NamedTuple):
    """One guard: torch's name of its kind, and what it says."""

    type: str
    texts: list[str]


class RawNode(NamedTuple):
    """One value that is guarded, or through which others are reached."""

    source: str
    type: str  # of the value when it was guarded
    access: str  # how it is reached from the one above
    guards: list[RawGuard]
    children: list[RawNode]
    manager: Any  # torch's

    @property
    def cls(self) -> Any:
        """The class of the value, None where it is gone."""
        return self.manager.get_type_of_guarded_value()

    def walk(self) -> Iterator[RawNode]:
        """Give this node and those below it, outer ones first."""
        yield self
        for each in self.children:
            yield from each.walk()


def tree_of(guards: Any) -> RawNode:
    """Read the tree; `guards` is the `GuardManagerWrapper` of an entry."""
    root = guards.root
    node = _node(root, "")
    node.guards.extend(_leaves(root.get_epilogue_lambda_guards()))
    return node


def add_last(guards: Any, function: Callable[[Any], Any], text: str) -> None:
    """Add a guard that is asked when all others hold; it gets what they get, and holds where it gives something true."""
    guards.root.add_epilogue_lambda_guard(function, [text], None)


def _node(manager: Any, access: str) -> RawNode:
    children = [_node(child, accessor) for accessor, child in _children(manager)]
    leaves = _leaves(manager.get_leaf_guards())
    return RawNode(manager.get_source(), _type_name(manager), access, leaves, children, manager)


def _children(manager: Any) -> Iterator[tuple[str, Any]]:
    from torch._C._dynamo.guards import DictGuardManager

    if isinstance(manager, DictGuardManager):
        for key_manager, value_manager in manager.get_key_value_managers().values():
            if key_manager is not None:
                yield "key", key_manager
            if value_manager is not None:
                yield "value", value_manager
    for accessor, child in zip(manager.get_accessors(), manager.get_child_managers(), strict=False):
        yield accessor.repr(), child


def _leaves(guards: list[Any]) -> list[RawGuard]:
    return [RawGuard(type(each).__name__, each.verbose_code_parts()) for each in guards]


def is_module(node: RawNode) -> bool:
    from torch.nn import Module

    return isinstance(node.cls, type) and issubclass(node.cls, Module)


def is_builtin_module(node: RawNode) -> bool:
    """Tell what torch means by it: its own modules without the containers. Torch: `VariableBuilder.wrap_module`."""
    where = node.cls.__module__ if is_module(node) else ""
    return where.startswith(("torch.nn.modules", "torch.ao.")) and not where.startswith("torch.nn.modules.container")


def is_tensor(node: RawNode) -> bool:
    """Tell whether it is a tensor and no parameter."""
    from torch import Tensor
    from torch.nn import Parameter

    return isinstance(node.cls, type) and issubclass(node.cls, Tensor) and not issubclass(node.cls, Parameter)


def is_tensor_value(value: Any) -> bool:
    from torch import Tensor

    return issubclass(type(value), Tensor)


def _type_name(manager: Any) -> str:
    cls = manager.get_type_of_guarded_value()
    return cls.__qualname__ if isinstance(cls, type) else ""
