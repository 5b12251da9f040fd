"""Check before each replay that what the recording depends on is unchanged, mostly with two fast functions of torch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

import torch

from dynx._torch.compilation.in_use import counts_of_modes
from dynx._torch.ops.cuda_graphs import address_check
from dynx._torch.ops.fast_checks import sameness_check
from dynx.cudagraphs._search.identity import are_identical, has_address
from dynx.cudagraphs._state.dict_watch import unchanged
from dynx.cudagraphs._state.process_state import modes_of_program, settings_of

Predicate = Callable[[], bool]

_are_at = address_check()


class Compared(NamedTuple):
    """Values that must not change after a recording was made.

    Attributes:
        dicts: Dicts that must not change at all.
        tensors: Tensors whose addresses must not change; those without an address are not compared.
        objects: Objects whose classes must not change.
        functions: Functions whose code must not change.
        lists: Lists that must contain the same objects.
        others: Predicates that must stay true, for everything else.
    """

    dicts: Sequence[dict[Any, Any]] = ()
    tensors: Sequence[torch.Tensor] = ()
    objects: Sequence[Any] = ()
    functions: Sequence[Any] = ()
    lists: Sequence[list[Any]] = ()
    others: Sequence[Predicate] = ()


def predicate_of(parts: Sequence[Compared], device_type: str) -> Predicate:
    """Return a fast predicate that is true while `parts`, and the settings of torch that calls depend on, are unchanged."""
    tensors = list(filter(has_address, _each_once(part.tensors for part in parts)))
    are_in_place = partial(_are_at, tensors, [tensor.data_ptr() for tensor in tensors], list(range(len(tensors))))
    first: list[Predicate] = [unchanged(_each_once(part.dicts for part in parts)), are_in_place]
    others = [other for part in parts for other in part.others]
    objects, functions = _each_once(part.objects for part in parts), _each_once(part.functions for part in parts)
    lists = _each_once(part.lists for part in parts)
    is_unchanged = all_of([*first, _same(objects, functions, lists, device_type), *others])
    if modes_of_program():
        return is_unchanged
    # torch's check fails for settings that a call does not depend on too, such as grad mode: `is_unchanged` decides then
    _, count_dispatch_modes = counts_of_modes()
    return all_of([*first, sameness_check(objects, functions, lists), *others], count_dispatch_modes, is_unchanged)


def _same(objects: Sequence[Any], functions: Sequence[Any], lists: Sequence[list[Any]], device_type: str) -> Predicate:
    """Return a predicate that is true while classes, code, list elements, torch's modes and `settings_of` are unchanged."""
    kinds, codes, elements = list(map(type, objects)), [each.__code__ for each in functions], list(map(list, lists))
    settings, modes = settings_of(device_type), list(map(id, modes_of_program()))
    count_function_modes, count_dispatch_modes = counts_of_modes()

    def is_equal() -> bool:
        has_modes = count_function_modes() or count_dispatch_modes()
        return (
            settings_of(device_type) == settings
            and (list(map(id, modes_of_program())) if has_modes else []) == modes
            and list(map(type, objects)) == kinds
            and [function.__code__ for function in functions] == codes
            and all(map(are_identical, lists, elements))
        )

    return is_equal


def all_of(
    checks: Sequence[Predicate], count: Callable[[], int] | None = None, otherwise: Predicate | None = None
) -> Predicate:
    """Return a predicate that is true if all checks are true and `count()` is 0; if not, it returns `otherwise()`.

    If `count` is None, only the checks matter; if `otherwise` is None, the predicate is false instead. The predicate is one
    expression: a Python function around each check would take as long as the check itself, in each call.
    """
    names: dict[str, Any] = {f"check{index}": check for index, check in enumerate(checks)}
    terms = [f"{name}()" for name in names]
    if count is not None:
        terms.append("not count()")
    expression = " and ".join(terms) + (" or otherwise()" if otherwise is not None else "")
    predicate: Predicate = eval(f"lambda: {expression}", {**names, "count": count, "otherwise": otherwise})
    return predicate


def _each_once(values: Iterable[Sequence[Any]]) -> list[Any]:
    return list({id(value): value for value in chain.from_iterable(values)}.values())
