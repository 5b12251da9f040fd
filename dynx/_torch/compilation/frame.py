"""Read the frame that Dynamo compiles, and the outcome of the compilation."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import CodeType
from typing import Any, Literal

from dynx._torch.capabilities import hook_point
from dynx._torch.compilation.backend_key import key_of

_RESUME = "torch_dynamo_resume_in_"  # resume_execution.TORCH_DYNAMO_RESUME_IN_PREFIX
_LIMIT = "Dynamo recompile limit exceeded"


@dataclass(frozen=True, slots=True)
class CompileCall:
    """The arguments of one call of `convert_frame._compile`, which keep the frame's locals alive: do not store this object."""

    code: CodeType
    locals: Mapping[str, Any]
    globals: Mapping[str, Any]
    id: str
    frame_number: int
    nth: int  # 0 for the first compilation of the frame, then 1, 2, ...
    backend: str
    fullgraph: bool
    cache_key: Any = None  # if the backend is keyed (`backend_key`)
    backend_object: Any = None  # without torch's wrappers
    automatic_dynamic: bool = True  # whether sizes that change become dynamic: not with `dynamic=False`


@dataclass(frozen=True, slots=True)
class Ending:
    """The outcome of one compilation, and the reason if it produced no compiled code."""

    outcome: Literal["compiled", "skipped", "failed", "gave_up"]
    reason: str | None
    limit: str | None = None  # the recompile limit that was reached


def compile_call(args: tuple[Any, ...], kwargs: dict[str, Any]) -> CompileCall:
    """Read the arguments of `convert_frame._compile`."""
    from torch._dynamo import config
    from torch._dynamo.eval_frame import innermost_backend

    arguments = dict(zip(hook_point("compile").leading, args, strict=False)) | kwargs
    compile_id = arguments["compile_id"]
    return CompileCall(
        arguments["code"],
        arguments["locals"],
        arguments["globals"],
        str(compile_id),
        compile_id.frame_id or 0,
        compile_id.frame_compile_id or 0,
        backend_name(arguments["compiler_fn"]),
        bool(arguments["one_graph"]),
        key_of(arguments["compiler_fn"]),
        innermost_backend(arguments["compiler_fn"]),
        config.automatic_dynamic_shapes,
    )


def module_of(call: CompileCall) -> Any | None:
    """Return the `nn.Module` whose method is compiled; None for a plain function.

    Torch compiles its built-in modules through `external_utils.wrap_inline(module)`, whose code object they all share.
    """
    from torch.nn import Module

    code = call.code
    first = code.co_varnames[0] if code.co_argcount else "fn"
    owner = call.locals.get(first)
    if not issubclass(type(owner), Module):
        return None
    return owner if first in ("fn", "self") or hasattr(type(owner), code.co_name) else None  # else a module is only an argument


def backend_name(backend: Any) -> str:
    """Return the name of a backend as the user wrote it: "inductor", "eager", or the name of the function."""
    from torch._dynamo.eval_frame import innermost_backend

    inner = innermost_backend(backend)
    name = getattr(inner, "compiler_name", None) or getattr(inner, "__name__", None)
    return name if isinstance(name, str) else type(inner).__name__


def ending(result: Any, raised: BaseException | None, *, fullgraph: bool) -> Ending:
    """Convert what `convert_frame._compile` returned or raised to the outcome of the compilation.

    Torch: `ConvertFrameReturn.skip_reason` exists from 2.13 on. Without fullgraph, `Unsupported` or `UserError` means that the
    function runs eagerly. At the recompile limit torch raises `Unsupported` too, or with fullgraph `FailOnRecompileLimitHit`,
    which reaches the user.
    """
    if raised is None:
        if result.guarded_code is not None:
            return Ending("compiled", None)
        return Ending("skipped", _first_line(getattr(result, "skip_reason", None) or "torch skipped it and gives no reason"))
    from torch._dynamo import exc

    reason = _first_line(str(raised)) or type(raised).__name__
    limit = "accumulated_recompile_limit" if "accumulated_recompile_limit" in str(raised) else "recompile_limit"
    if type(raised).__name__ == "FailOnRecompileLimitHit":
        return Ending("failed", f"{type(raised).__name__}: {reason}", limit)
    if isinstance(raised, exc.Unsupported) and _LIMIT in str(raised):
        return Ending("gave_up", reason, limit)
    if isinstance(raised, (exc.Unsupported, exc.UserError)) and not fullgraph:
        return Ending("skipped", reason)
    detail = _DETAIL.search(str(raised))  # the error of an operator; torch's first line only says that there was an error
    return Ending("failed", f"{type(raised).__name__}: {reason.rstrip(':')}{f': {detail[1] or detail[2]}' if detail else ''}")


def guards_of(result: Any) -> Any | None:
    """Return the `GuardManagerWrapper` in a result of `convert_frame._compile`; None if nothing was compiled."""
    compiled = getattr(result, "guarded_code", None)
    return None if compiled is None else compiled.guard_manager


_DETAIL = re.compile(r"got (\w+(?:Error|Exception)\(.+)|^\s+Explanation: (Attribute .+)", re.M)


def limit_value(name: str) -> int | None:
    """Return the recompile limit `torch._dynamo.config.<name>`; None if its value is not an integer."""
    import torch._dynamo.config as config

    value = getattr(config, name, None)
    return value if isinstance(value, int) else None


def user_name(function: str) -> str:
    """Return a function's name as the user wrote it: `f` for the resume function `torch_dynamo_resume_in_f_at_74`."""
    outer, dot, name = function.rpartition(".")
    if not name.startswith(_RESUME):
        return function
    return f"{outer}{dot}{name[len(_RESUME) :].rpartition('_at_')[0]}"


def resumed_at(code: CodeType) -> int | None:
    """Return the line of the graph break after which a resume function continues; None if it is not a resume function."""
    if not code.co_name.startswith(_RESUME):
        return None
    line = code.co_name.rpartition("_at_")[2]
    return int(line) if line.isdigit() else code.co_firstlineno


def restart_reason(raised: BaseException) -> tuple[bool, str]:
    """Return whether an exception makes Dynamo restart its analysis, and the reason that the exception states."""
    from torch._dynamo import exc

    restarts = isinstance(raised, exc.RestartAnalysis)
    reason = getattr(raised, "restart_reason", None)
    return restarts, _first_line(reason or str(raised)) or type(raised).__name__


def is_compiled_itself(code: CodeType) -> bool:
    """Return whether a function was itself passed to torch.compile, rather than called by a compiled function."""
    from torch._dynamo.eval_frame import always_optimize_code_objects

    return code in always_optimize_code_objects


def symbolic_sources(tracer_output: Any) -> frozenset[str]:
    """Return the sources of values that became symbols in a trace, even if specialized later, such as `L['x'].size()[0]`."""
    shape_env = tracer_output.output_graph.shape_env
    return frozenset(shape_env.source_to_var) if shape_env is not None else frozenset()


def is_skip(raised: BaseException) -> bool:
    """Return whether an exception makes Dynamo skip the frame, which then runs eagerly."""
    from torch._dynamo import exc

    return isinstance(raised, (exc.SkipFrame, exc.Unsupported, exc.UserError))


def raises_at_break(raised: BaseException, *, fullgraph: bool) -> bool:
    """Return whether the exception of a graph break reaches the user, because `fullgraph` or `error_on_graph_break` is set."""
    output = getattr(raised, "_torch_dynamo_tracer_output", None)
    return fullgraph or bool(getattr(output, "error_on_graph_break", False))


def _first_line(text: str) -> str:
    """Return the first line of a text, joined with the second if the first ends with a colon: `backend='x' raised:`."""
    lines = text.strip().splitlines()
    return " ".join(lines[: 2 if lines[0].endswith(":") else 1]) if lines else ""
