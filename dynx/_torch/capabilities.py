"""List every private name of torch that dynx uses, and check whether the installed torch has it.

A hook point is a function of torch that dynx replaces; an attribute is a name that dynx only reads or calls.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from dynx._torch.cuda_attributes import CUDA_ATTRIBUTES
from dynx._torch.hook_points import HOOK_POINTS, TOOL_POINTS
from dynx._torch.hooks import HookPoint, owner_of, parameters_of
from dynx.errors import UnsupportedTorch

__all__ = ["ATTRIBUTES", "HOOK_POINTS", "TOOL_POINTS", "Capability", "capabilities", "capability", "hook_point", "require"]

State = Literal["ok", "changed", "missing"]

_MODES = "torch.utils._python_dispatch"
_FOR_BACKWARD = "tensors that a backward pass still needs, in dynx.cudagraphs"
_RETRACED = "what-if traces: what a fix would change"
_CAPTURES = "compiled autograd: captures, and why a backward pass is captured again"
_NOT_ON_DISK = "why a graph was not found in the caches on disk"

ATTRIBUTES: Mapping[str, tuple[str, str]] = {
    "phase_times": ("torch._dynamo.utils:compilation_time_metrics", "the compile time by phase"),
    "metrics": ("torch._dynamo.utils:_compilation_metrics", "graph size and guard count"),
    "tracing_context": ("torch._guards:TracingContext.try_get", "the user line while tracing"),
    "global_state": ("torch._C._dynamo.guards:GlobalStateGuard.__getstate__", "both values of a changed global state"),
    "function_modes": ("torch._C:_len_torch_function_stack", "both values of a changed stack of function modes"),
    "dispatch_modes_counted": ("torch._C:_len_torch_dispatch_stack", "cudagraphs under a dispatch mode"),
    "function_mode": ("torch._C:_get_function_stack_at", "both values of a changed stack of function modes"),
    "default_device": ("torch.utils._device:CURRENT_DEVICE", "both values of a changed default device"),
    "functorch_stack": ("torch._functorch.pyfunctorch:retrieve_all_functorch_interpreters", "changed torch.func transforms"),
    "forward_ad_level": ("torch.autograd.forward_ad:_current_level", "both values of a changed level of forward-mode AD"),
    "functorch_active": ("torch._C:_are_functorch_transforms_active", "calls inside of torch.func, in dynx.cudagraphs"),
    "saved_tensors_hooks": ("torch._C._autograd:_top_saved_tensors_default_hooks", "changed hooks for saved tensors"),
    "eager": ("torch._dynamo.backends.debugging:eager", "backends that never use inductor"),
    "eager_noexcept": ("torch._dynamo.backends.debugging:eager_noexcept", "backends that never use inductor"),
    "innermost_backend": ("torch._dynamo.eval_frame:innermost_backend", "the backend's name"),
    "compiled_code": ("torch._dynamo.eval_frame:always_optimize_code_objects", "functions that were compiled"),
    "compiled_autograd": ("torch._dynamo.config:compiled_autograd", "backward() in compiled code"),
    "automatic_dynamic": ("torch._dynamo.config:automatic_dynamic_shapes", "advice: recompiles because of dynamic=False"),
    "recompile_limit": ("torch._dynamo.config:recompile_limit", "the recompile limit"),
    "accumulated_limit": ("torch._dynamo.config:accumulated_recompile_limit", "the recompile limit"),
    "fail_on_limit": ("torch._dynamo.config:fail_on_recompile_limit_hit", "errors at the recompile limit"),
    "replay_side_effects": ("torch._dynamo.config:replay_side_effects", "side effects: whether compiled code repeats any"),
    "restart": ("torch._dynamo.exc:RestartAnalysis", "attempts that restart"),
    "skip_frame": ("torch._dynamo.exc:SkipFrame", "functions that Dynamo skips"),
    "unsupported": ("torch._dynamo.exc:Unsupported", "errors that break a graph"),
    "observed_exception": ("torch._dynamo.exc:ObservedException", "exceptions that traced code raises and catches"),
    "dynamo_error": ("torch._dynamo.exc:TorchDynamoException", "errors of callbacks apart from those of the tracer"),
    "runtime_error": ("torch._dynamo.exc:TorchRuntimeError", "post-mortem: operators that fail on fake tensors"),
    "internal_error": ("torch._dynamo.exc:InternalTorchDynamoError", "post-mortem: errors inside of Dynamo"),
    "backend_error": ("torch._dynamo.exc:BackendCompilerFailed", "post-mortem: errors of backends"),
    "known_objects": ("torch._dynamo.variables.builder:VariableBuilder._id_dispatch", "comptime"),
    "attribute_source": ("torch._dynamo.source:AttrSource", "comptime's helpers"),
    "global_source": ("torch._dynamo.source:GlobalStateSource", "custom guards"),
    "constant": ("torch._dynamo.variables:ConstantVariable.create", "constants that callbacks return"),
    "literal": ("torch._dynamo.variables:ConstantVariable.is_literal", "constants that callbacks return"),
    "list": ("torch._dynamo.variables:ListVariable", "lists that callbacks return"),
    "tuple": ("torch._dynamo.variables:TupleVariable", "tuples that callbacks return"),
    "mutation": ("torch._dynamo.variables.base:ValueMutationNew", "lists that callbacks return"),
    "variable": ("torch._dynamo.variables.base:VariableTracker", "comptime"),
    "build_variable": ("torch._dynamo.variables.base:VariableTracker.build", "attributes of dynx.comptime"),
    "variable_fields": ("torch._dynamo.variables.base:VariableTracker._nonvar_fields", "comptime"),
    "realize_all": ("torch._dynamo.variables.lazy:LazyVariableTracker.realize_all", "guards on what callbacks read"),
    "trace_id": ("torch._guards:CompileContext.current_trace_id", "compile id and attempt"),
    "guard": ("torch._guards:Guard", "custom guards"),
    "install_guard": ("torch._dynamo.guards:install_guard", "custom guards"),
    "constrain_range": ("torch.fx.experimental.symbolic_shapes:constrain_range", "ranges of unbacked numbers"),
    "canonicalize": ("torch.fx.experimental.symbolic_shapes:canonicalize_bool_expr", "messages of failed assertions"),
    "free_symbols": ("torch.fx.experimental.symbolic_shapes:free_symbols", "dynamic sizes"),
    "free_unbacked": ("torch.fx.experimental.symbolic_shapes:free_unbacked_symbols", "unbacked symbols"),
    "concrete_bool": ("torch.fx.experimental.symbolic_shapes:is_concrete_bool", "asserted conditions"),
    "known_true": ("torch.fx.experimental.symbolic_shapes:statically_known_true", "conditions that need no guard"),
    "interpreter": ("torch.utils._sympy.interp:sympy_interp", "conditions that torch can assert in the graph"),
    "reference": ("torch.utils._sympy.reference:OptimizedPythonReferenceAnalysis", "conditions that torch can assert"),
    "remainder": ("torch.utils._sympy.functions:Mod", "conditions on remainders"),
    "python_remainder": ("torch.utils._sympy.functions:PythonMod", "conditions on remainders"),
    "implications": ("torch.fx.experimental.symbolic_shapes:ShapeEnv.get_implications", "assumed conditions"),
    "attempt_end": (
        "torch._dynamo.output_graph:OutputGraph.add_cleanup_hook",
        "output of callbacks once per call, not once per attempt",
    ),
    "break": ("torch._dynamo.exc:unimplemented", "graph breaks on request"),
    "short_traceback": ("torch._dynamo.exc:ShortenTraceback", "errors of callbacks without frames of torch"),
    "breakable": ("torch._dynamo.symbolic_convert:break_graph_if_unsupported", "graph breaks at any line"),
    "instructions": ("torch._dynamo.bytecode_transformation:cleaned_instructions", "probes"),
    "no_operation": ("torch._dynamo.bytecode_transformation:create_instruction", "graph breaks at any line"),
    "resume_functions": (
        "torch._dynamo.resume_execution:ContinueExecutionCache.generated_code_metadata",
        "probes in resume functions",
    ),
    "trace_rules": ("torch._dynamo.trace_rules:lookup", "functions that are never traced"),
    "compiled_module": ("torch._dynamo.eval_frame:OptimizedModule", "callables that are compiled already"),
    "module_call": ("torch.nn:Module._call_impl", "callables that are compiled already"),
    "global_forward_hooks": ("torch.nn.modules.module:_global_forward_hooks", "hooks that compiled modules run"),
    "global_module_hooks": ("torch.nn.modules.module:_global_forward_pre_hooks", "guards on arguments of forward()"),
    "aot_autograd": ("torch._dynamo.backends.common:aot_autograd", "dynx.cudagraphs"),
    "report_output_strides": (
        "torch._guards:TracingContext.report_output_strides",
        "dynx.cudagraphs with inner='inductor': pieces of a graph",
    ),
    "forward_metadata": ("torch._guards:TracingContext.get", "inputs that dynx.cudagraphs need not copy"),
    "autograd_config": ("torch._functorch.config:patch", "dynx.cudagraphs with inner='inductor'"),
    "dynamo_config": ("torch._dynamo.config:patch", "dynx.saved: reports and plans"),
    "compile_fx": ("torch._inductor.compile_fx:compile_fx", "dynx.cudagraphs with inner='inductor'"),
    "compile_fx_inner": ("torch._inductor.compile_fx:compile_fx_inner", "dynx.cudagraphs with inner='inductor'"),
    "tensor_guards": ("torch._C._dynamo.guards:TensorGuards", "cudagraphs.fast_path"),
    "global_state_guard": ("torch._C._dynamo.guards:GlobalStateGuard", "cudagraphs.fast_path"),
    "type_guards": ("torch._C._dynamo.guards:RootGuardManager.add_type_match_guard", "cudagraphs.fast_path"),
    "id_guards": ("torch._C._dynamo.guards:RootGuardManager.add_id_match_guard", "cudagraphs.fast_path"),
    "length_guards": ("torch._C._dynamo.guards:RootGuardManager.add_length_check_guard", "cudagraphs.fast_path"),
    "function_mode_guard": (
        "torch._C._dynamo.guards:RootGuardManager.add_torch_function_mode_stack_guard",
        "cudagraphs.fast_path",
    ),
    "allocate_on_cpu": ("torch._C._dynamo.guards:_empty_strided_cpu", "results of CUDA graphs, in the emulator"),
    "allocate_on_cuda": ("torch._C._dynamo.guards:_empty_strided_cuda", "results of CUDA graphs"),
    "dict_versions": ("torch._C._dynamo.guards:RootGuardManager.add_dict_version_guard", "cudagraphs.fast_path"),
    "saved_count": ("torch._inductor.utils:count_tangents", "tensors that a forward graph saved, in dynx.cudagraphs"),
    "weak_tensor": ("torch._C:_WeakTensorRef", _FOR_BACKWARD),
    "storage_from_pointer": ("torch:UntypedStorage._new_with_weak_ptr", _FOR_BACKWARD),
    "negative_view": ("torch:_neg_view", _FOR_BACKWARD),
    "foreach_copy": ("torch:_foreach_copy_", "copies of inputs, in dynx.cudagraphs"),
    "foreach_add": ("torch:_foreach_add_", "gradients, in dynx.cudagraphs"),
    "foreach_zero": ("torch:_foreach_zero_", "gradients, in dynx.cudagraphs"),
    "foreach_mul": ("torch:_foreach_mul", "copies of gradients, in dynx.cudagraphs"),
    "without_modes": (f"{_MODES}:_disable_current_modes", "dynx.saved: constants of a graph while torch traces"),
    "statically_true": ("torch.fx.experimental.symbolic_shapes:statically_known_true", "dynx.saved: bounds of unbacked sizes"),
    "saved_tensor_hooks": ("torch._C._autograd:_top_saved_tensors_default_hooks", "saved-tensor hooks, in dynx.cudagraphs"),
    "saved_hooks_enabled": ("torch._C._autograd:_saved_tensors_hooks_is_enabled", "saved-tensor hooks, in dynx.cudagraphs"),
    "trace_hook": ("torch._functorch._aot_autograd.graph_compile:prepare_hook_gm", "dynx.saved: codecs in compiled graphs"),
    "top_hooks": ("torch._functorch._aot_autograd.utils:top_saved_tensors_hooks", "dynx.saved: active saved-tensor hooks"),
    "inlineable_hooks": (
        "torch._functorch._aot_autograd.utils:saved_tensors_hooks_are_inlineable",
        "dynx.saved: active saved-tensor hooks",
    ),
    "compiled_autograd_region": (
        "torch._dynamo.compiled_autograd:in_compiled_autograd_region",
        "dynx.saved: graphs without a backward graph of their own",
    ),
    "functional_tensor": ("torch._subclasses.functional_tensor:FunctionalTensor", "dynx.saved: hooks that torch tries"),
    "will_execute": ("torch._C:_will_engine_execute_node", "gradients in place, in dynx.cudagraphs"),
    "input_codes": ("torch._dynamo.convert_frame:input_codes", "dynx guards"),
    "cache_entries": ("torch._dynamo.eval_frame:_debug_get_cache_entry_list", "callables that are compiled already"),
    "optimize": ("torch._dynamo.eval_frame:_optimize", "dynx.compile"),
    "optimize_context": ("torch._dynamo:optimize", "dynx.compile"),
    "inductor_config": ("torch._inductor.config:get_hash", "a separate cache for each configuration"),
    "innermost_fn": ("torch._dynamo.eval_frame:innermost_fn", "dynx.compile of functions that are compiled already"),
    "wrap_inline": ("torch._dynamo.external_utils:wrap_inline", "a cache for each class of built-in modules"),
    "cached_backends": ("torch._dynamo.eval_frame:cached_backends", "backends that torch._dynamo.reset() resets"),
    "stance": ("torch._dynamo.eval_frame:_stance", "a separate cache for the backend that a stance forces"),
    "config_hash": ("torch.utils._config_module:ConfigModule.get_hash", "a separate cache for each configuration"),
    "stance_callback": ("torch._dynamo.eval_frame:_callback_from_stance", "dynx.would_recompile under a stance"),
    "skip_guards": ("torch._dynamo.eval_frame:_is_skip_guard_eval_unsafe_stance", "dynx.would_recompile under a stance"),
    "skip_code": ("torch._dynamo.eval_frame:skip_code", "dynx.would_recompile"),
    "mark_dynamic": ("torch._dynamo:mark_dynamic", "dynx run --try"),
    "maybe_mark_dynamic": ("torch._dynamo:maybe_mark_dynamic", "dynx run --try"),
    "skipped_files": ("torch._dynamo.trace_rules:check", "dynx.would_recompile of code that torch skips"),
    "disable_config": ("torch._dynamo.config:disable", "dynx.would_recompile where torch compiles nothing"),
    "modes_inlined": ("torch._dynamo.config:inline_torch_dispatch_torch_compile", "dynx.would_recompile under dispatch modes"),
    "mode_stack": (f"{_MODES}:_get_current_dispatch_mode_stack", "why nothing was compiled under a mode"),
    "modes_on_stack": (f"{_MODES}:any_torch_dispatch_mode_on_stack", "dynx.would_recompile under modes"),
    "any_mode": (f"{_MODES}:is_in_any_mode_without_ignore_compile_internals", "dynx.would_recompile under dispatch modes"),
    "cache_size": ("torch._dynamo.cache_size:compute_cache_size", "whether another compilation would exceed a limit"),
    "guard_fail_reason": ("torch._dynamo.guards:get_guard_fail_reason_helper", "why a cache entry does not fit a call"),
    "resume_codes": ("torch._dynamo.resume_execution:ContinueExecutionCache.cache", "guards of resume functions"),
    "compile_lock": ("torch._dynamo.convert_frame:compile_lock", "changes to the cache while another thread compiles"),
    "state_at_start": ("torch._dynamo.convert_frame:initial_global_state", _RETRACED),
    "pin": ("torch._C._dynamo.eval_frame:_load_precompile_entry", "guards.pin"),
    "pinned": ("torch._C._dynamo.eval_frame:_debug_get_precompile_entries", "guards.pin"),
    "unpin": ("torch._C._dynamo.eval_frame:_reset_precompile_entries", "guards.pin"),
    "reset_code": ("torch._dynamo.eval_frame:reset_code", "guards.reset"),
    "isa_code": ("torch._inductor.cpu_vec_isa:VecISA._avx_code", "which tests of CPU instructions a setting skips"),
    "inductor_settings": ("torch._inductor.config:patch", "dynx.check with random numbers, and in a forked process"),
    "bytecode_hook": ("torch._dynamo.convert_frame:register_bytecode_hook", "dynx.check"),
    "counters": ("torch._dynamo.utils:counters", "dynx.check"),
    "module_cache": ("torch._dynamo.symbolic_convert:_import_module", "dynx.check"),
    "hooks_before_all_steps": ("torch.optim.optimizer:_global_optimizer_pre_hooks", "cudagraphs.train_step"),
    "hooks_after_all_steps": ("torch.optim.optimizer:_global_optimizer_post_hooks", "cudagraphs.train_step"),
    "profiling": ("torch.autograd.profiler:_is_profiler_enabled", "names of CUDA graphs in profiler traces"),
    "custom_ops": ("torch._library.custom_ops:OPDEFS", "dynx.check"),
    "active_modes": ("torch.overrides:_get_current_function_mode_stack", "dynx.check"),
    "dispatch_modes": (f"{_MODES}:_get_current_dispatch_mode_stack", "dynx.check"),
    "disabled_modes": (f"{_MODES}:_disable_current_modes", "dynx.check"),
    "disabled_functions": ("torch._C:DisableTorchFunction", "dynx.check"),
    "global_names": ("torch._dynamo.utils:CleanupManager.instance", "dynx.check"),
    "deleted_guards": ("torch._dynamo.guards:DeletedGuardManagerWrapper", "guards.evict"),
    "guard_tree": ("torch._C._dynamo.guards:DictGuardManager.get_key_value_managers", "guards.inspect"),
    "set_eval_frame": ("torch._C._dynamo.eval_frame:set_eval_frame", "dynx.would_recompile, and the entries that a call runs"),
    "set_skip_guards": ("torch._C._dynamo.eval_frame:set_skip_guard_eval_unsafe", "dynx.would_recompile under a stance"),
    "frame_return": ("torch._dynamo.types:ConvertFrameReturn", "dynx.would_recompile"),
    "convert_frame": ("torch._dynamo:convert_frame", "dynx.would_recompile"),
    "guard_manager": ("torch._dynamo.guards:GuardManagerWrapper", "guards.inspect"),
    "guard_manager_kinds": ("torch._dynamo.guards:GuardManagerType.GUARD_MANAGER", "guards.profile of dict tags"),
    "clone_guards": ("torch._C._dynamo.guards:RootGuardManager.clone_manager", "guards.profile"),
    "root_guards": ("torch._C._dynamo.guards:RootGuardManager", "guards.profile"),
    "dispatch_keys": ("torch._C:_dispatch_keys", "guards.profile of dict tags"),
    "dict_tags": ("torch._dynamo.guards:GuardManagerWrapper.find_tag_safe_roots", "guards.profile of dict tags"),
    "profile": ("torch._dynamo.pgo:_CODE_STATE", "profiles of dynamic sizes"),
    "profile_at_start": ("torch._dynamo.pgo:_INIT_CODE_STATE", "sizes that are dynamic because of torch's own profile"),
    "code_knowledge": ("torch._dynamo.pgo:CodeState", _RETRACED),
    "profile_entry": ("torch._dynamo.pgo:FrameStateSizeEntry", "profiles of dynamic sizes"),
    "profile_stride": ("torch._dynamo.pgo:InferStride", "profiles of dynamic sizes"),
    "profile_dynamic": ("torch._dynamo.pgo:auto_dynamic", "profiles of dynamic sizes"),
    "profile_unset": ("torch._dynamo.pgo:auto_unset", "profiles of dynamic sizes"),
    "compile_frame": ("torch._dynamo.convert_frame:compile_frame", _RETRACED),
    "metrics_context": ("torch._dynamo.utils:get_metrics_context", _RETRACED),
    "timed": ("torch._dynamo.utils:dynamo_timed", _RETRACED),
    "compile_id": ("torch._guards:CompileId", _RETRACED),
    "compile_context": ("torch._guards:compile_context", _RETRACED),
    "compile_hooks": ("torch._dynamo.hooks:Hooks", _RETRACED),
    "mode_stack_of_frame": ("torch._dynamo.convert_frame:torch_function_mode_stack_state_mgr", _RETRACED),
    "state_of_trace": ("torch._dynamo.convert_frame:preserve_global_state", _RETRACED),
    "result_without_gradient": ("torch._C:_functions.DelayedError", _RETRACED),
    "unique_names": ("torch._dynamo.bytecode_transformation:_unique_id_counter", _RETRACED),
    "compile_numbers": ("torch._dynamo.output_graph:_compile_id_counter", _RETRACED),
    "key_details": ("torch._inductor.codecache:FxGraphHashDetails", _NOT_ON_DISK),
    "tensor_metadata": ("torch._inductor.codecache:extract_tensor_metadata_for_cache_key", _NOT_ON_DISK),
    "cache_directory": ("torch._inductor.runtime.runtime_utils:cache_dir", _NOT_ON_DISK),
    "fake_tensor": ("torch._subclasses.fake_tensor:FakeTensor", _NOT_ON_DISK),
    "engine_call": ("torch.autograd.graph:_engine_run_backward", _CAPTURES),
    "capture_backward": ("torch._dynamo.compiled_autograd:_enable", _CAPTURES),
    "capture_no_backward": ("torch._dynamo.compiled_autograd:_disable", "dynx.check(compiled_autograd=True)"),
    "captures_are_cached": ("torch._C:_dynamo.compiled_autograd.is_cache_empty", _CAPTURES),
    "captures_are_forgotten": ("torch._C:_dynamo.compiled_autograd.clear_cache", _CAPTURES),
    "captures_are_numbered": ("torch._dynamo.compiled_autograd:COMPILE_COUNTER", _CAPTURES),
    "captures_are_enabled": ("torch._dynamo.compiled_autograd:compiled_autograd_enabled", _CAPTURES),
    "schemas": ("torch._C:_jit_get_all_schemas", _CAPTURES),
    "user_error": ("torch._dynamo.exc:UserError", "errors in the user's code that break a graph"),
}

# attributes that some supported versions of torch lack; the purpose names the feature that is lost without them
OPTIONAL_ATTRIBUTES: Mapping[str, tuple[str, str]] = {
    "set_region": (
        "torch._C._dynamo.eval_frame:set_eval_frame_isolate_recompiles_id",
        "isolate_recompiles (regions of cache entries; torch before 2.13 has none)",
    ),
    "limit_patcher": (
        "torch._dynamo.config:_make_closure_patcher",
        "dynx.compile(recompile_limit=...) where torch has no isolate_recompiles",
    ),
}

_VARIABLES = ("profile", "profile_at_start")  # None until torch compiles, or loads a profile

_POINTS = {point.name: point for point in (*HOOK_POINTS, *TOOL_POINTS)}
_OPTIONAL = {**OPTIONAL_ATTRIBUTES, **CUDA_ATTRIBUTES}
_ATTRIBUTES = {**ATTRIBUTES, **_OPTIONAL}


@dataclass(frozen=True, slots=True)
class Capability:
    """A private name of torch that dynx uses, and whether the installed torch has it, lacks it, or has changed it."""

    name: str
    path: str
    state: State
    purpose: str
    found: tuple[str, ...]  # the parameters of a function, the type of another object; the error if the name is missing
    optional: bool = False

    def require(self) -> None:
        """Raise UnsupportedTorch if the installed torch lacks this name; a changed signature does not raise."""
        if self.state == "missing":
            import torch

            raise UnsupportedTorch(
                f"torch {torch.__version__} has no {self.path}, which dynx needs for: {self.purpose}\n"
                "  run `dynx doctor` to see what this torch supports"
            )


def hook_point(name: str) -> HookPoint:
    """Return the `HookPoint` (a function of torch that dynx replaces) with this name in `HOOK_POINTS` or `TOOL_POINTS`."""
    return _POINTS[name]


def capability(name: str) -> Capability:
    """Check whether torch has the function or attribute that dynx lists under this name. Not cached: tests remove names."""
    point = _POINTS.get(name)
    path, purpose = (point.path, point.purpose) if point is not None else _ATTRIBUTES[name]
    optional = point.optional if point is not None else name in _OPTIONAL
    try:
        owner, attribute = owner_of(path)
        target = getattr(owner, attribute)
        kind = "variable" if name in _VARIABLES else type(target).__name__
        found = parameters_of(path) if point is not None or callable(target) else (kind,)
    except (ImportError, AttributeError) as error:
        return Capability(name, path, "missing", purpose, (f"{type(error).__name__}: {error}",), optional)
    state: State = "ok" if point is None or _fits(point, inspect.unwrap(target)) else "changed"
    return Capability(name, path, state, purpose, found, optional)


def require(*names: str) -> None:
    """Raise UnsupportedTorch if torch lacks a function or attribute that dynx lists under one of these names."""
    for name in names:
        if not _is_there(name):
            capability(name).require()


def _is_there(name: str) -> bool:
    """Return whether torch has the function or attribute that dynx lists under this name; faster than `capability`."""
    try:
        owner, attribute = owner_of(_POINTS[name].path if name in _POINTS else _ATTRIBUTES[name][0])
        getattr(owner, attribute)
    except (ImportError, AttributeError):
        return False
    return True


def capabilities() -> tuple[Capability, ...]:
    """Return a `Capability` for each function and attribute of torch that dynx uses; its `state` is ok, changed or missing."""
    return tuple(capability(name) for name in (*_POINTS, *_ATTRIBUTES))


def _fits(point: HookPoint, target: object) -> bool:
    if not callable(target) or not (point.leading or point.named):  # built-in functions have no signature
        return callable(target)
    parameters = tuple(inspect.signature(target).parameters)
    leading = all(expected in ("", actual) for expected, actual in zip(point.leading, parameters, strict=False))
    return leading and len(parameters) >= len(point.leading) and set(point.named) <= set(parameters)
