"""The functions of torch that dynx hooks: `HOOK_POINTS` while `dynx.watch` records, `TOOL_POINTS` while a tool needs them."""

from __future__ import annotations

from dynx._torch.hooks import HookPoint

_CONVERT = "torch._dynamo.convert_frame"
_BACKWARD_COMPILER = "torch._dynamo.compiled_autograd:AutogradCompilerInstance"
_SIDE_EFFECTS = "torch._dynamo.side_effects:SideEffects"

HOOK_POINTS: tuple[HookPoint, ...] = (
    HookPoint(
        "compile",
        f"{_CONVERT}:_compile",
        ("code", "globals", "locals", "builtins", "closure", "compiler_fn", "one_graph"),
        ("frame", "compile_id"),
        skips=True,
        purpose="every compilation: its frame, time and outcome",
    ),
    HookPoint("attempt", f"{_CONVERT}:trace_frame", ("code",), purpose="attempts of a compilation, and why they restarted"),
    HookPoint(
        "recompile",
        f"{_CONVERT}:get_and_maybe_log_recompilation_reasons",
        ("", "frame", "backend"),
        ("skip_logging",),
        purpose="why a function was recompiled",
    ),
    HookPoint(
        "refused",
        "torch._dynamo.guards:get_and_maybe_log_recompilation_reasons",
        ("", "frame", "backend"),
        ("skip_logging",),
        purpose="recompiles that the stance fail_on_recompile refuses",
    ),
    HookPoint(
        "graph_break",
        "torch._dynamo.symbolic_convert:InstructionTranslatorBase.log_graph_break",
        ("self", "code_options", "reason", "exc"),
        purpose="graph breaks",
    ),
    HookPoint(
        "guard_added", "torch._guards:GuardsSet.add", ("self", "guard"), skips=True, purpose="the lines that requested a guard"
    ),
    HookPoint(
        "no_tensor",
        f"{_CONVERT}:has_tensor_in_frame",
        purpose="functions that are skipped because they have no tensor arguments",
    ),
    HookPoint("generator", f"{_CONVERT}:is_generator", ("code",), purpose="generator functions, which run eagerly"),
    HookPoint(
        "skip",
        f"{_CONVERT}:CatchErrorsWrapper._handle_skip",
        ("self", "result", "frame"),
        purpose="other skips (without a log message; torch before 2.13 has no reasons)",
        optional=True,
    ),
    HookPoint(
        "backward_start",
        "torch._dynamo.callback:CompilationCallbackHandler.run_start_callbacks",
        ("self", "args"),
        purpose="backward graphs that are compiled at the first backward()",
    ),
    HookPoint(
        "backward_end",
        "torch._dynamo.callback:CompilationCallbackHandler.run_end_callbacks",
        ("self", "args"),
        purpose="the compile time of backward graphs",
    ),
    HookPoint(
        "event",
        "torch._dynamo.utils:CompileEventLogger.instant",
        ("event_name", "metadata"),
        purpose="cache hits, misses and bypasses; sizes that became dynamic",
    ),
    HookPoint(
        "isa_check",
        "torch._inductor.cpu_vec_isa:VecISA.check_build",
        ("self",),
        purpose="the time of inductor's tests of CPU instructions",
    ),
    HookPoint(
        "backend",
        "torch._dynamo.output_graph:OutputGraph.call_user_compiler",
        ("self", "gm"),
        purpose="equal modules in a graph; timeline: the time of the backend",
    ),
    HookPoint(
        "dynamic_update",
        "torch._dynamo.pgo:update_automatic_dynamic",
        ("tx", "name", "entry"),
        purpose="the values of sizes: profiles, and sizes that are dynamic because of a profile",
    ),
    HookPoint(
        "effect_track",
        f"{_SIDE_EFFECTS}._track_obj",
        ("self", "item", "variable"),
        purpose="side effects: the contents of containers before they are mutated",
    ),
    HookPoint(
        "effect_track_alias",
        f"{_SIDE_EFFECTS}.track_mutable",
        ("self", "item", "variable"),
        purpose="side effects: the contents of containers before they are mutated",
    ),
    HookPoint(
        "effect_create", f"{_SIDE_EFFECTS}.track_object_new", ("self",), purpose="side effects: the lines that create objects"
    ),
    HookPoint(
        "effect_create_object",
        f"{_SIDE_EFFECTS}.track_new_user_defined_object",
        ("self",),
        purpose="side effects: the lines that create objects",
    ),
    HookPoint("effect_mutation", f"{_SIDE_EFFECTS}.mutation", ("self", "var"), purpose="side effects: mutations of containers"),
    HookPoint(
        "effect_attribute",
        f"{_SIDE_EFFECTS}.store_attr",
        ("self", "item", "name"),
        purpose="side effects: assignments to attributes, cells and globals",
    ),
    HookPoint(
        "effect_list_method",
        "torch._dynamo.variables.lists:BaseListVariable.call_method",
        ("self", "tx", "name"),
        purpose="side effects: the lines of mutations that Dynamo does not note",
    ),
    HookPoint(
        "effect_deque_method",
        "torch._dynamo.variables.lists:DequeVariable.call_method",
        ("self", "tx", "name"),
        purpose="side effects: what a deque with maxlen holds after each mutation",
    ),
    HookPoint(
        "effect_code",
        f"{_SIDE_EFFECTS}.codegen_update_mutated",
        ("self", "cg", "log_side_effects"),
        purpose="side effects: which ones compiled code repeats",
    ),
    HookPoint(
        "effect_load",
        "torch._dynamo.codegen:PyCodegen.__call__",
        ("self", "value", "allow_cache"),
        purpose="side effects: which ones compiled code repeats",
    ),
    HookPoint(
        "effect_graph",
        "torch._dynamo.output_graph:OutputGraph.compile_subgraph",
        ("self", "tx"),
        purpose="side effects of each graph",
    ),
)

# hooked only while the tool that needs them is in use
TOOL_POINTS: tuple[HookPoint, ...] = (
    HookPoint(
        "prepared",
        "torch._dynamo.eval_frame:_optimize",
        ("rebuild_ctx", "backend"),
        ("disable",),
        purpose="why nothing was compiled: what torch.compile prepares",
    ),
    HookPoint(
        "backend_lookup",
        "torch._dynamo.backends.registry:lookup_backend",
        purpose="why nothing was compiled: backends that cannot be loaded",
    ),
    HookPoint(
        "compiled_call",
        "torch._dynamo.eval_frame:_callback_from_stance",
        ("callback",),
        purpose="why nothing was compiled: the first call of a compiled function",
    ),
    HookPoint(
        "donated_inputs",
        "torch._inductor.graph:get_donated_idxs",
        purpose="CUDA graphs of inductor's kernels: inputs that several pieces of a graph read",
    ),
    HookPoint(
        "stream_capturing",
        "torch.cuda:is_current_stream_capturing",
        purpose="CUDA graphs in the emulator: libraries that ask whether a capture is in progress",
    ),
    HookPoint(
        "optimizer_asks",
        "torch.optim:Optimizer._accelerator_graph_capture_health_check",
        ("self",),
        purpose="CUDA graphs in the emulator: optimizers on a machine with a CUDA device",
    ),
    HookPoint(
        "enter_compiled",
        "torch._dynamo.eval_frame:_maybe_set_eval_frame",
        purpose="guards.evict, reset and pin: calls of compiled code that begin are held while the cache is changed",
    ),
    HookPoint(
        "logged_once",
        "torch._dynamo.variables.torch:warning_once",
        purpose="what-if traces: messages that torch logs once in a process are left to the program's own compilations",
    ),
    HookPoint(
        "logged_once_by_context",
        "torch._dynamo.variables.ctx_manager:warning_once",
        purpose="what-if traces: messages that torch logs once in a process are left to the program's own compilations",
    ),
    HookPoint(
        "comptime_call",
        "torch._dynamo.variables.misc:ComptimeVariable.call_function",
        ("self", "tx"),
        purpose="what-if traces: callbacks of torch's comptime are not run again",
    ),
    HookPoint(
        "constant_result",
        "torch._dynamo.variables.functions:invoke_and_store_as_constant",
        ("tx", "fn"),
        purpose="what-if traces: functions under assume_constant_result are not run again",
    ),
    HookPoint(
        "code_of_function",
        "torch._dynamo.variables.functions:UserFunctionVariable.get_code",
        ("self",),
        purpose="what-if traces: functions as a fix would rewrite them",
    ),
    HookPoint(
        "traced_call",
        "torch._dynamo.symbolic_convert:InstructionTranslatorBase.call_function",
        ("self", "fn", "args", "kwargs"),
        purpose="values that no guard watches: results of calls that are constants in compiled code",
    ),
    HookPoint(
        "dropped_guard",
        "torch._dynamo.guards:is_from_skip_guard_source",
        ("source",),
        purpose="values that no guard watches: guards on values of the standard library",
    ),
    HookPoint(
        "frame_run",
        "torch._dynamo.symbolic_convert:InstructionTranslatorBase.run",
        ("self",),
        purpose="probes: every frame that Dynamo starts to trace",
    ),
    HookPoint(
        "step",
        "torch._dynamo.symbolic_convert:InstructionTranslatorBase.step",
        ("self",),
        purpose="post-mortem, timeline and debugger: every instruction",
    ),
    HookPoint(
        "donated_buffers",
        "torch._functorch._aot_autograd.graph_compile:collect_bw_donated_buffer_idxs",
        purpose="dynx.cudagraphs with inner='inductor', and dynx.check",
    ),
    HookPoint(
        "inline_hooks",
        "torch._functorch._aot_autograd.graph_compile:maybe_inline_graph_saved_tensors_hooks",
        ("fw_module", "bw_module", "num_inner_fwd_outputs", "inner_meta", "aot_config", "static_input_indices"),
        purpose="dynx.saved: the tensors that graphs save for backward",
    ),
    HookPoint(
        "visible_hooks",
        "torch._C._autograd:_top_saved_tensors_default_hooks",
        purpose="dynx.saved: no further graph under torch.no_grad",
    ),
    HookPoint(
        "disable_saved_hooks",
        "torch._dynamo.variables.ctx_manager:DisabledSavedTensorsHooksVariable._call_func",
        ("self", "tx", "values"),
        purpose="dynx.saved: refuse torch.func.grad in compiled functions",
    ),
    HookPoint(
        "symbol_id",
        "torch.fx.experimental.symbolic_shapes:ShapeEnv._generate_unique_id",
        ("self", "source_name"),
        purpose="names of symbols that do not depend on their order",
    ),
    HookPoint("code_state", "torch._dynamo.pgo:get_code_state", purpose="profiles of dynamic sizes: apply"),
    HookPoint("code_id", "torch._dynamo.pgo:CodeId.make", ("code",), purpose="profiles of functions with a closure"),
    HookPoint(
        "cache_key",
        "torch._inductor.codecache:FxGraphCachePickler.dumps",
        ("self", "obj"),
        purpose="why a graph was not found in the caches on disk",
    ),
    HookPoint(
        "capture_begin",
        f"{_BACKWARD_COMPILER}.begin_capture",
        ("self", "inputs", "sizes", "scalars", "origins", "accumulate_grad"),
        purpose="compiled autograd: every capture",
    ),
    HookPoint(
        "capture_reasons",
        f"{_BACKWARD_COMPILER}.log_compile_reasons",
        ("self", "compile_reasons"),
        purpose="compiled autograd: why no earlier capture fits",
    ),
    HookPoint(
        "capture_reordering",
        f"{_BACKWARD_COMPILER}.delay_unpack_hook_nodes",
        ("self",),
        purpose="compiled autograd: the order of a captured graph before torch changes it",
    ),
    HookPoint(
        "capture_graph",
        f"{_BACKWARD_COMPILER}.create_graph_module",
        ("self",),
        purpose="compiled autograd: captured graphs",
    ),
    HookPoint(
        "capture_end",
        f"{_BACKWARD_COMPILER}.end_capture",
        ("self", "outputs"),
        purpose="compiled autograd: the time of captures, and their calls",
    ),
    HookPoint("node_stack", "torch.fx.traceback:format_stack", purpose="compiled autograd: modules of autograd nodes"),
    HookPoint(
        "capture_reset",
        "torch._dynamo.compiled_autograd:reset",
        purpose="compiled autograd: reasons of captures after torch._dynamo.reset()",
    ),
)
