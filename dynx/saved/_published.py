"""The functions that torch takes for saved-tensor hooks, by a name that is the same in every process.

A key of AOTAutograd's cache on disk contains the function that a hook calls by its module and name, and looks it up there. So
the functions for equal rules have one name, `pack_<hash>` in this module. They are also one object, as long as the process
lives: Dynamo guards on the identity of hooks, so that a loop which enters new hooks with equal rules compiles once.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import GraphModule

from dynx._torch.autograd.partition import hook_module, is_fake
from dynx.saved._eager import pack_eagerly, unpack_eagerly
from dynx.saved._graphs.inline import Schedule
from dynx.saved._rules import Rule


@dataclass(frozen=True, slots=True, eq=False)
class Published:
    """Rules, and the hooks that stand for them."""

    rules: tuple[Rule, ...]
    validate: bool
    schedule: Schedule
    pack: GraphModule
    unpack: GraphModule


_lock = threading.Lock()
_published: dict[str, Published] = {}
_by_pack: dict[int, Published] = {}  # by the id of the pack hook, which lives as long as the process


def publish(key: str, rules: tuple[Rule, ...], *, validate: bool, schedule: Schedule) -> Published:
    """Return the hooks for a key, which is a hash of the rules; the same objects for the same key."""
    with _lock:
        if key not in _published:
            pack = _function(f"pack_{key}", lambda value: _pack(value, rules, validate=validate))
            unpack = _function(f"unpack_{key}", unpack_eagerly)
            made = Published(rules, validate, schedule, hook_module(pack, key), hook_module(unpack, key))
            _published[key] = _by_pack[id(made.pack)] = made
        return _published[key]


def published_by(hooks: tuple[Any, Any] | None) -> Published | None:
    """Return the rules of a pair of hooks; None for hooks that dynx did not make."""
    return None if hooks is None else _by_pack.get(id(hooks[0]))


def _pack(value: torch.Tensor, rules: tuple[Rule, ...], *, validate: bool) -> Any:
    if is_fake(value):
        return value  # torch tries a hook while it traces; the graphs are edited later
    return pack_eagerly(value, rules, validate=validate)


def _function(name: str, call: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def function(value: Any) -> Any:
        return call(value)

    function.__name__ = function.__qualname__ = name
    function.__module__ = __name__
    globals()[name] = function
    return function
