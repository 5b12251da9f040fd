"""Observe the functions by which Dynamo tracks side effects and generates their bytecode, and fill an `EffectLog`.

The observers only read the arguments and results of these functions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dynx._torch.hooks import After, Before
from dynx._torch.side_effects.frame_effects import frame_effects
from dynx._torch.side_effects.log import EffectLog, log_of
from dynx._torch.tracing.stack import stack_parts


def _log(side_effects: Any) -> EffectLog | None:
    """Return the `EffectLog` of the attempt that owns `side_effects`; None after the attempt. Torch: `output_graph_weakref`."""
    output = side_effects.output_graph_weakref()
    return None if output is None else log_of(output)


def _on_track(args: tuple[Any, ...], kwargs: dict[str, Any]) -> After | None:
    log = _log(args[0])
    if log is None:
        return None
    real = args[1] if len(args) > 1 else kwargs["item"]

    def after(result: Any, raised: BaseException | None) -> None:
        if raised is None:
            log.track(real, result)

    return after


def _on_create(args: tuple[Any, ...], kwargs: dict[str, Any]) -> After | None:
    log = _log(args[0])
    if log is None:
        return None

    def after(result: Any, raised: BaseException | None) -> None:
        if raised is None:
            log.created[id(result)] = stack_parts()

    return after


def _on_mutation(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    side_effects, variable = args[0], args[1] if len(args) > 1 else kwargs["var"]
    log = _log(side_effects)
    if log is not None and variable not in side_effects.ignore_mutation_on_these_variables:
        log.mutate(variable, None)


def _on_attribute(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    log = _log(args[0])
    if log is not None:
        item, name = (*args[1:3], *(kwargs[key] for key in ("item", "name")[len(args) - 1 :]))
        log.mutate(item, name)


def _on_list_method(args: tuple[Any, ...], kwargs: dict[str, Any]) -> After | None:
    variable, tx = args[:2]
    log = getattr(tx.output, "dynx_effect_log", None)
    name = args[2] if len(args) > 2 else kwargs["name"]
    end = log.call(variable, name, is_used=_is_result_used(tx)) if log is not None else None
    return None if end is None else lambda result, raised: end()


def _is_result_used(tx: Any) -> bool:
    """Return whether traced code uses the result of the current call: if the next instruction is POP_TOP, it does not."""
    next_one = tx.instruction_pointer
    return next_one is None or next_one >= len(tx.instructions) or tx.instructions[next_one].opname != "POP_TOP"


def _on_code(args: tuple[Any, ...], kwargs: dict[str, Any]) -> After | None:
    log = _log(args[0])
    is_last = args[2] if len(args) > 2 else kwargs.get("log_side_effects", False)
    if log is None or not is_last:  # torch generates the code twice and keeps the second version
        return None
    log.depth, log.written = 0, []

    def after(result: Any, raised: BaseException | None) -> None:
        log.depth = None

    return after


def _on_load(args: tuple[Any, ...], kwargs: dict[str, Any]) -> After | None:
    log = getattr(args[0].tx.output, "dynx_effect_log", None)
    if log is None or log.depth is None:
        return None
    if log.depth == 0:
        log.written.append((args[1], args[2] if len(args) > 2 else kwargs.get("allow_cache", True)))
    log.depth += 1

    def after(result: Any, raised: BaseException | None) -> None:
        log.depth -= 1

    return after


def _on_graph_end(args: tuple[Any, ...], kwargs: dict[str, Any]) -> After | None:
    output = args[0]
    log = getattr(output, "dynx_effect_log", None)
    if log is None:
        return None
    log.written = []

    def after(result: Any, raised: BaseException | None) -> None:
        if raised is None:
            frame = frame_effects(output, log)
            if frame is not None:
                log.frames.append(frame)

    return after


OBSERVERS: Mapping[str, Before] = {
    "effect_track": _on_track,
    "effect_track_alias": _on_track,
    "effect_create": _on_create,
    "effect_create_object": _on_create,
    "effect_mutation": _on_mutation,
    "effect_attribute": _on_attribute,
    "effect_list_method": _on_list_method,
    "effect_deque_method": _on_list_method,
    "effect_code": _on_code,
    "effect_load": _on_load,
    "effect_graph": _on_graph_end,
}
