"""The guards of a cache entry, as the tree in which torch evaluates them.

Torch: `GuardManager`, `DictGuardManager` and `LeafGuard` of `torch._C._dynamo.guards`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple


class RawGuard(NamedTuple):
    """One leaf guard of a node: torch's name of its class, and its conditions as text."""

    type: str
    texts: list[str]


class RawNode(NamedTuple):
    """One node of the guard tree: a value with guards, or an object or container through which such values are accessed."""

    source: str
    type: str  # of the value when it was guarded
    access: str  # the accessor from the parent node
    guards: list[RawGuard]
    children: list[RawNode]
    manager: Any  # torch's `GuardManager`

    @property
    def cls(self) -> Any:
        """The class of the value that this node guards; None once the class is freed."""
        return self.manager.get_type_of_guarded_value()

    def walk(self) -> Iterator[RawNode]:
        """Yield this node and its descendants, parents first."""
        yield self
        for child in self.children:
            yield from child.walk()


def tree_of(guards: Any) -> RawNode:
    """Return the guard tree of a cache entry; `guards` is its `GuardManagerWrapper`."""
    root = guards.root
    node = _node(root, "")
    node.guards.extend(_leaves(root.get_epilogue_lambda_guards()))
    return node


def add_last(guards: Any, function: Callable[[Any], Any], text: str) -> None:
    """Add a guard that torch evaluates last: `function` takes the locals and returns whether it passes; `text` describes it."""
    guards.root.add_epilogue_lambda_guard(function, [text], None)


def leaf_holds(leaf: Any, value: Any) -> bool:
    """Return whether one guard holds for a value; True for a guard on several values, which cannot be evaluated by itself."""
    try:
        return bool(leaf(value))
    except TypeError:  # the classes of guards on several values are not callable
        return True
    except SystemError:  # of C++, which does not clear an exception: the value has no length
        return False


def _node(manager: Any, access: str) -> RawNode:
    children = [_node(child, accessor) for accessor, child in _children(manager)]
    leaves = _leaves(manager.get_leaf_guards())
    cls = manager.get_type_of_guarded_value()
    name = cls.__qualname__ if isinstance(cls, type) else ""
    return RawNode(manager.get_source(), name, access, leaves, children, manager)


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
    return [RawGuard(type(guard).__name__, guard.verbose_code_parts()) for guard in guards]


def is_module(node: RawNode) -> bool:
    """Return whether the value that a node guards is an `nn.Module`."""
    from torch.nn import Module

    return isinstance(node.cls, type) and issubclass(node.cls, Module)


def is_builtin_module(node: RawNode) -> bool:
    """Return whether a node guards a module of `torch.nn` or `torch.ao`; False for containers such as `Sequential`."""
    package = node.cls.__module__ if is_module(node) else ""
    return package.startswith(("torch.nn.modules", "torch.ao.")) and not package.startswith("torch.nn.modules.container")


def is_tensor(node: RawNode) -> bool:
    """Return whether the value that a node guards is a tensor, but not a parameter."""
    from torch import Tensor
    from torch.nn import Parameter

    return isinstance(node.cls, type) and issubclass(node.cls, Tensor) and not issubclass(node.cls, Parameter)
