"""Dict tags: torch skips the guards below a module while no dict of the module and its submodules has changed.

Torch: `config.use_recursive_dict_tags_for_guards`, on in 2.11 and off from 2.13 on. If it is on, torch marks modules of a new
guard tree as "tag-safe roots" (`GuardManagerWrapper.find_tag_safe_roots`). The tree of an existing cache entry can be marked
too, but marks cannot be removed. From 2.13 on, guards on tensors below a marked module are evaluated nevertheless. Dict tags
detect neither a new `__class__` of a module nor a change inside of a function that a module stores. Before Python 3.12 torch
compares the dicts through pointers that may dangle (pytorch#188101).
"""

from __future__ import annotations

import sys
from typing import Any

from dynx._torch.cache.guard_tree import RawNode, tree_of
from dynx._torch.capabilities import require


def mark(guards: Any) -> None:
    """Turn on dict tags for the cache entry with this `GuardManagerWrapper`: torch then skips guards of unchanged modules."""
    require("dict_tags")
    guards.find_tag_safe_roots()


def marked(tree: RawNode) -> list[RawNode]:
    """Return the nodes of a guard tree that use dict tags: modules below which torch skips guards until a dict changes."""
    return [node for node in tree.walk() if node.manager.is_tag_safe_root()]


def would_mark(tree: RawNode) -> list[RawNode]:
    """Return the nodes for which `mark` would turn on dict tags, determined on a copy of the tree; `tree` is not changed."""
    require("dict_tags", "guard_manager", "clone_guards")
    from torch._dynamo.guards import GuardManagerWrapper

    copy = GuardManagerWrapper(tree.manager.clone_manager(lambda _: True))
    copy.find_tag_safe_roots()
    pairs = zip(tree.walk(), tree_of(copy).walk(), strict=True)
    return [node for node, copied in pairs if copied.manager.is_tag_safe_root()]


def may_read_freed_memory() -> bool:
    """Return whether torch's dict tags may read freed memory: before Python 3.12 they compare dicts through raw pointers."""
    return sys.version_info < (3, 12)


def stand_in(contents: list[list[Any]]) -> tuple[Any, dict[str, Any]]:
    """Build a guard tree with dict tags to measure their cost; return its `RootGuardManager` and locals that pass its guards.

    For each list in `contents`, the tree guards a new module that has the dicts and tensors of the list as attributes.
    This tree is timed instead of the tree of a cache entry, because dict tags cannot be turned off again after the timing.
    """
    require("root_guards", "guard_manager_kinds", "dispatch_keys")
    from torch import _C, Tensor
    from torch._C._dynamo.guards import RootGuardManager
    from torch._dynamo.guards import GuardManagerType
    from torch.nn import Module

    root, locals = RootGuardManager(), {}
    kind = GuardManagerType.GUARD_MANAGER
    for number, values in enumerate(contents):
        name = f"module{number}"
        module = locals[name] = Module()
        attributes = vars(module)
        attributes |= {f"dynx{i}": dict(value) if isinstance(value, dict) else value for i, value in enumerate(values)}
        source = f"L[{name!r}]"
        at_module = root.framelocals_manager((name, number), source, module, kind)
        at_dict = at_module.get_generic_dict_manager(f"{source}.__dict__", attributes, kind)
        for key, value in attributes.items():
            if key.startswith("dynx"):
                path = f"{source}.{key}"
                at_value = at_dict.dict_getitem_manager(key, path, value, kind)
                if isinstance(value, Tensor):
                    sizes, strides, keys = list(value.size()), list(value.stride()), _C._dispatch_keys(value)
                    at_value.add_tensor_match_guard(value, sizes, strides, path, [path], None, type(value), keys)
                at_value.mark_tag_safe()
        at_dict.mark_tag_safe()
        at_module.mark_tag_safe()
        at_module.mark_tag_safe_root()
    return root, locals
