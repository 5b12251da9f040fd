"""Read from torch the source of a guard, the reason why a cache entry's guards fail, and the frame that is recompiled."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from types import CodeType
from typing import Any, NamedTuple

from dynx._torch.compilation.frame import backend_name


def guard_source(source: Any) -> str:
    """Return the expression of a Dynamo `Source`, such as `L['x']`; an empty string if the source has no name.

    Torch: `Source.name` is a property in 2.13 and 2.15 and a method in 2.11; some sources have no name.
    """
    try:
        name = source.name
        return str(name() if callable(name) else name)
    except NotImplementedError:
        return ""


_OF_VALUES = ("ID_MATCH", "EQUALS_MATCH", "CONSTANT_MATCH", "FUNCTION_MATCH", "CLOSURE_MATCH", "BUILTIN_MATCH", "BOOL_MATCH",
    "NONE_MATCH", "CLASS_MATCH", "MODULE_MATCH", "NN_MODULE", "HASATTR", "WEAKREF_ALIVE", "DICT_CONTAINS",
)  # fmt: skip


def is_of_value(guard: Any) -> bool:
    """Return whether a guard fails if another value takes the place of the guarded one. Torch: `Guard.create_fn_name`."""
    return guard.create_fn_name() in _OF_VALUES


def guarded_attribute(guard: Any) -> str | None:
    """Return the name of the attribute whose existence a Dynamo `Guard` checks, as after `hasattr`; None for other guards.

    Torch: `functools.partial(GuardBuilder.HASATTR, attr=...)`.
    """
    create = getattr(guard, "create_fn", None)
    return create.keywords.get("attr") if isinstance(create, partial) else None


def recompile_call(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Mapping[str, Any], Mapping[str, Any]] | None:
    """Return the locals and globals of the frame being recompiled, read from the arguments of torch's recompilation logger.

    Torch: `get_and_maybe_log_recompilation_reasons`. If modules are not inlined, torch 2.11 calls it a second time, with
    `skip_logging`: for that call None is returned.
    """
    skip_logging = kwargs.get("skip_logging", args[3] if len(args) > 3 else False)
    if skip_logging:
        return None
    frame = args[1] if len(args) > 1 else kwargs["frame"]
    return frame.f_locals, frame.f_globals


class RefusedCall(NamedTuple):
    """A call that needs a recompilation, which torch refuses under the stance "fail_on_recompile"."""

    code: CodeType
    locals: Mapping[str, Any]
    globals: Mapping[str, Any]
    backend: str  # its name


def refused_call(args: tuple[Any, ...], kwargs: dict[str, Any]) -> RefusedCall:
    """Return the refused call from the arguments that the stance "fail_on_recompile" passes to torch's recompilation logger.

    Torch: `get_and_maybe_log_recompilation_reasons`, which `eval_frame` imports right before each call.
    """
    arguments = dict(zip(("entries", "frame", "backend"), args, strict=False)) | kwargs
    frame = arguments["frame"]
    return RefusedCall(frame.f_code, frame.f_locals, frame.f_globals, backend_name(arguments["backend"]))


def failure_reason(guards: Any, compile_id: str, locals: Mapping[str, Any], backend: Any) -> str:
    """Return torch's explanation of why a cache entry's guards fail for these locals; `guards` is its `GuardManagerWrapper`."""
    from torch._dynamo.guards import get_guard_fail_reason_helper

    try:
        return str(get_guard_fail_reason_helper(guards, locals, compile_id, backend))
    except Exception as error:  # noqa: BLE001 - torch evaluates its guards as text, on values of the user
        parts = guards.check_verbose(locals).verbose_code_parts
        return f"{compile_id}: {parts[0] if parts else error}"


def holds(guards: Any, locals: Mapping[str, Any]) -> bool:
    """Return whether the guards of a cache entry hold for these locals, without a change of the order of the guards.

    Torch: `check` counts the failures of a guard and evaluates guards that fail often first; `check_verbose` does not.
    """
    return bool(guards.check_verbose(locals).result)
