"""Trace the frame of a call again, without a backend and without running it, and keep the guards.

Torch: `convert_frame.compile_frame` traces a frame and returns a `DynamoOutput`, whose `build_guards` creates the guards. Both
are alike in 2.11, 2.13 and 2.15.
"""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from functools import cache
from types import CodeType
from typing import Any

from dynx._torch.cache.guard_tree import tree_of
from dynx._torch.capabilities import hook_point, require
from dynx._torch.compilation.frame import is_skip
from dynx._torch.hooks import RunsUserCode, Subscription, retracing, subscribe
from dynx._torch.retracing.quiet import quiet
from dynx._torch.retracing.state import unchanged_state
from dynx._torch.retracing.user_code import not_run
from dynx._torch.tracing.graph_breaks import RawBreak, break_call, read_break
from dynx._torch.tracing.translator import has_nothing_to_compile

_FIRST = 1_000_000_000  # numbers in names of a trace: larger than those of the program's own compilations
_CODE = ("__compiled_fn_", "__resume_at_")  # names of what the bytecode of a trace calls, which guards do not read
_numbers = itertools.count(_FIRST)


@dataclass(frozen=True, slots=True, eq=False)
class Frame:
    """The arguments of a call of `convert_frame._compile`, which keep the program's data alive: do not store this object."""

    code: CodeType
    globals: dict[str, Any]
    locals: Mapping[str, Any]
    builtins: dict[str, Any]
    closure: tuple[Any, ...]
    fullgraph: bool
    guard_filter: Any  # the option `guard_filter_fn` of torch.compile, or None


def frame_of(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Frame:
    """Return the frame in the arguments of `convert_frame._compile`."""
    names = (*hook_point("compile").leading, "export", "export_constraints", "hooks")
    arguments = dict(zip(names, args, strict=False)) | dict(kwargs)
    return Frame(
        arguments["code"],
        arguments["globals"],
        arguments["locals"],
        arguments["builtins"],
        arguments["closure"],
        bool(arguments["one_graph"]),
        getattr(arguments["hooks"], "guard_filter_fn", None),
    )


class Guards:
    """The guards of a trace, which can be checked for a later call, without a change of the cache of the function."""

    def __init__(self, guards: Any, globals: dict[str, Any], added: dict[str, Any]) -> None:
        self._guards, self._globals, self._added = guards, globals, added

    def accept(self, frame: Frame, variables: Mapping[str, Any]) -> bool:
        """Return whether the guards hold for a call: a frame of the same function with these local variables."""
        self._globals |= frame.globals | self._added
        try:
            return bool(self._guards.check(variables))
        finally:
            self._globals.clear()  # torch may keep guards, and this dict, as long as an object that they guard by its id

    def texts(self) -> tuple[str, ...]:
        """Return the conditions as torch words them: `L['n'] == 3`."""
        return tuple(text for node in tree_of(self._guards).walk() for guard in node.guards for text in guard.texts)


@dataclass(frozen=True, slots=True, eq=False)
class Retraced:
    """The result of a trace: its guards, or what it raised, its graph breaks, and its duration in seconds.

    It has neither guards nor an exception if the trace ended where code of the program would have run at compile time.
    """

    guards: Guards | None
    raised: BaseException | None
    breaks: tuple[RawBreak, ...]
    seconds: float


def retrace(frame: Frame, variables: Mapping[str, Any]) -> Retraced:
    """Trace a frame with these values of its local variables, and return its guards.

    Nothing of the frame is run, and the state of torch is the same afterwards, except for its profile of dynamic sizes (PGO),
    which `shapes.profile_copies` replaces.
    """
    require("compile_frame", "metrics_context", "timed", "compile_lock", "state_at_start", "state_of_trace")
    from torch._dynamo import convert_frame

    began = time.perf_counter()
    breaks: list[RawBreak] = []
    guards, raised = None, None
    with convert_frame.compile_lock, ExitStack() as stack:
        stack.callback(_collect(breaks).remove)
        for context in (retracing(), quiet(), unchanged_state(), not_run(), _own_numbers(), _own_state_at_start()):
            stack.enter_context(context)
        try:
            guards = _trace(frame, dict(variables))
        except RunsUserCode:
            breaks.clear()
        except Exception as error:  # noqa: BLE001 - whatever the trace raises is the answer to what would happen
            raised = error
            if is_skip(error) and not has_nothing_to_compile(error):
                breaks.append(read_break("", error))
    return Retraced(guards, raised, tuple(breaks), time.perf_counter() - began)


def _collect(breaks: list[RawBreak]) -> Subscription:
    """Add each graph break of a trace for dynx to `breaks` until the handle is removed."""

    def on_break(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        breaks.append(read_break(*break_call(args, kwargs)))

    def failed(hook: str, error: BaseException) -> None:
        raise error

    return subscribe(hook_point("graph_break"), on_break, on_error=failed, this_thread_only=True, of_retraces=True)


@contextmanager
def _own_state_at_start() -> Iterator[None]:
    """Let the guards of a trace require the global state of now, not of when torch began with the compilation around it."""
    from torch._C._dynamo.guards import GlobalStateGuard
    from torch._dynamo import convert_frame

    before = convert_frame.initial_global_state
    convert_frame.initial_global_state = GlobalStateGuard()
    try:
        yield
    finally:
        convert_frame.initial_global_state = before


def _trace(frame: Frame, variables: dict[str, Any]) -> Guards:
    from torch._dynamo import config, utils
    from torch._dynamo.convert_frame import compile_frame, torch_function_mode_stack_state_mgr
    from torch._dynamo.hooks import Hooks
    from torch._guards import CompileContext, CompileId, compile_context

    compile_id = CompileId(frame_id=next(_numbers), frame_compile_id=0)
    names = set(frame.globals)
    added: dict[str, Any] = {}
    timed = utils.dynamo_timed(
        "_compile.compile_inner",
        phase_name="entire_frame_compile",
        dynamo_compile_column_us="dynamo_cumulative_compile_time_us",
    )
    # guards whose result depends on whether a dict was changed since the last check would watch the dicts of the program
    settings = {"use_recursive_dict_tags_for_guards": False}
    known = {name: value for name, value in settings.items() if hasattr(config, name)}
    with utils.get_metrics_context(), timed, compile_context(CompileContext(compile_id)), config.patch(**known):
        output = None
        try:
            with _without_function_modes(torch_function_mode_stack_state_mgr):
                output = compile_frame(
                    frame.code,
                    frame.globals,
                    variables,
                    frame.builtins,
                    frame.closure,
                    compiler_fn=lambda graph, inputs: graph.forward,
                    one_graph=frame.fullgraph,
                    restart_reasons=set(),
                    frame_state={},
                )
                graph = output.tracer_output.output_graph
                graph.global_scope = globals = dict(frame.globals)
                hooks = Hooks(guard_filter_fn=frame.guard_filter)
                with _function_modes(torch_function_mode_stack_state_mgr):
                    guards = output.build_guards(frame.code, hooks=hooks).guard_manager
                globals.clear()
        finally:
            for name in frame.globals.keys() - names:
                if not _is_added(name):
                    continue
                value = frame.globals.pop(name)
                if not name.startswith(_CODE):
                    added[name] = value
            if output is not None:
                output.tracer_output._cleanup_output_graph()
    return Guards(guards, globals, added)


@contextmanager
def _without_function_modes(manager: Any) -> Iterator[None]:
    """Turn off the function modes of the program, as torch does while it traces, and keep them in `manager`.

    `manager` keeps one list of modes: entered twice, it loses the first, and the modes of the program stay off.
    """
    before = manager.stack
    with _function_modes(manager):
        try:
            with nullcontext() if _trace_turns_modes_off() else manager:
                yield
        finally:
            manager.stack = before


@cache
def _trace_turns_modes_off() -> bool:
    """Return whether torch turns off function modes for each trace of a frame (2.11), or around it (2.13, 2.15)."""
    from torch._C import _len_torch_function_stack
    from torch._dynamo.convert_frame import preserve_global_state
    from torch.overrides import BaseTorchFunctionMode

    with BaseTorchFunctionMode():
        return preserve_global_state(_len_torch_function_stack)() == 0


@contextmanager
def _function_modes(manager: Any) -> Iterator[None]:
    if manager.stack:
        with manager.temp_restore_stack():
            yield
    else:
        yield


@contextmanager
def _own_numbers() -> Iterator[None]:
    """Let Dynamo number the names that it adds to globals apart from those of the program's own compilations."""
    from torch._dynamo import bytecode_transformation, output_graph

    before = bytecode_transformation._unique_id_counter, output_graph._compile_id_counter
    bytecode_transformation._unique_id_counter = output_graph._compile_id_counter = _numbers
    try:
        yield
    finally:
        bytecode_transformation._unique_id_counter, output_graph._compile_id_counter = before


def _is_added(name: str) -> bool:
    """Return whether Dynamo added a name to globals, rather than another thread of the program."""
    return name.startswith("__") or any(int(number) >= _FIRST for number in re.findall(r"_c(\d+)$", name))
