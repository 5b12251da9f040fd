"""Ways to have the guards of a frame checked, and what each would cost and miss."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from dynx._torch.cache import dict_tags
from dynx._torch.cache.guard_timing import GuardTimes
from dynx._torch.cache.guard_tree import RawNode, is_builtin_module, is_module, is_tensor, is_tensor_value
from dynx._trace.safe_read import resolve
from dynx.records import GuardNode, GuardSetting

IN_USE = "in use"
DICT_TAGS = "dict tags"

_Drops = Callable[[RawNode, RawNode | None], bool]  # of a value and the module it is in

_FILTERS: Mapping[str, _Drops] = {  # of torch.compiler
    "skip_guard_on_inbuilt_nn_modules_unsafe": lambda node, module: module is not None and is_builtin_module(module),
    "skip_guard_on_all_nn_modules_unsafe": lambda node, module: module is not None,
    "keep_tensor_guards_unsafe": lambda node, module: not is_tensor(node),
}
_CLASS_ASSIGNED = "a class that is assigned to a module: module.__class__ = Other"
_FUNCTION_CHANGED = "a function that a module holds: what it closes over rebound, its defaults or code replaced"
_FREED = "before Python 3.12: torch may read freed memory once a submodule was replaced (pytorch#188101)"
_CHANGES_MADE = "no guard is dropped; of generated changes to modules it notices every other one that torch's default does"


class Planned(NamedTuple):
    """A setting for the guards of one frame."""

    name: str
    ns: Callable[[], float]  # once measured
    kept: int  # guards
    dropped: Counter[str]  # guards by kind


def plan(
    times: GuardTimes, tree: RawNode, guards: GuardNode, locals: Mapping[str, Any], globals: Mapping[str, Any]
) -> list[Planned]:
    """Name what is to be timed; `guards` is the record of the tree."""
    every = [len(node.guards) for _, node in guards.walk()]
    planned = [Planned(IN_USE, lambda: times.whole, sum(every), Counter())]
    if roots := [] if dict_tags.marked(tree) else dict_tags.would_mark(tree):
        below = {id(each) for root in roots for each in root.walk()}
        rest = times.add_copy(each for each in tree.walk() if id(each) not in below)
        shortcut = times.add_root(*dict_tags.stand_in([_held(each, locals, globals) for each in roots]))
        planned.append(Planned(DICT_TAGS, lambda: rest() + shortcut(), sum(every), Counter()))
    kinds = {id(raw): [each.kind for each in node.guards] for raw, (_, node) in zip(tree.walk(), guards.walk(), strict=True)}
    for name, drops in _FILTERS.items():
        kept = _kept(tree, None, drops)
        dropped: Counter[str] = Counter(kind for raw in _dropped(tree, None, drops) for kind in kinds[id(raw)])
        copy = times.add_copy(kept or [tree])
        planned.append(Planned(name, _less(copy, times, ambient=drops(tree, None)), sum(every) - dropped.total(), dropped))
    return planned


def settings(frames: Sequence[tuple[list[Planned], int]]) -> tuple[GuardSetting, ...]:
    """Add up what was measured of each frame and how often it runs in a call: the setting in use first, then the cheapest."""
    found = []
    for name in dict.fromkeys(each.name for planned, _ in frames for each in planned):
        ns, kept, dropped = 0.0, 0, Counter[str]()
        for planned, times in frames:
            mine = next((each for each in planned if each.name == name), planned[0])
            ns, kept, dropped = ns + mine.ns() * times, kept + mine.kept, dropped + mine.dropped
        if name in (IN_USE, DICT_TAGS) or dropped:
            found.append(_setting(name, ns, kept, dropped))
    return (found[0], *sorted(found[1:], key=lambda each: each.ns))


def _setting(name: str, ns: float, kept: int, dropped: Counter[str]) -> GuardSetting:
    if name == IN_USE:
        return GuardSetting(name, ns, kept)
    if name == DICT_TAGS:
        misses = (_CLASS_ASSIGNED, _FUNCTION_CHANGED, *([_FREED] if dict_tags.may_read_freed_memory() else []))
        return GuardSetting(name, ns, kept, misses, _CHANGES_MADE, f'profile.apply("{DICT_TAGS}")')
    total = dropped.total()
    kinds = ", ".join(f"{count} {kind}" for kind, count in dropped.most_common())
    return GuardSetting(
        name,
        ns,
        kept,
        (f"what {total} guards look at: {kinds}",),
        f"counted: {total} of {total + kept} guards are dropped",
        f'torch.compile(..., options={{"guard_filter_fn": torch.compiler.{name}}})',
    )


def _kept(node: RawNode, module: RawNode | None, drops: _Drops) -> list[RawNode]:
    """List what is not dropped, with what leads to it."""
    module = node if is_module(node) else module
    below = [each for child in node.children for each in _kept(child, module, drops)]
    return [node, *below] if below or not drops(node, module) else []


def _dropped(node: RawNode, module: RawNode | None, drops: _Drops) -> list[RawNode]:
    module = node if is_module(node) else module
    below = [each for child in node.children for each in _dropped(child, module, drops)]
    return [node, *below] if drops(node, module) else below


def _less(copy: Callable[[], float], times: GuardTimes, *, ambient: bool) -> Callable[[], float]:
    """Take off the time of global state, which a copy always checks, where it is dropped."""
    return lambda: max(0.0, copy() - times.ambient) if ambient else copy()


def _held(root: RawNode, locals: Mapping[str, Any], globals: Mapping[str, Any]) -> list[Any]:
    """List the dictionaries and tensors at and below a module that are guarded."""
    values = [resolve(each.source, locals, globals) for each in root.walk()]
    return [each for each in values if type(each) is dict or is_tensor_value(each)]
