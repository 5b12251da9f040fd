"""Faults in `dynx/cudagraphs/_compiled/`, and the test files that have to fail for each."""

from __future__ import annotations

from fault import Fault

FAULTS = (
    Fault(
        "pieces that inductor compiles may overwrite what other pieces read",
        "../_torch/autograd/inductor.py",
        '        hooks.replace(hook_point("donated_inputs"), _no_buffers),\n',
        "",
        "test_inductor_pieces.py::test_training_matches_eager",
    ),
    Fault(
        "pieces that inductor compiles choose the layout of their results",
        "../_torch/autograd/inductor.py",
        "range(len(values))",
        "range(0)",
        "test_inductor_pieces.py::test_training_matches_eager",
    ),
    Fault(
        "activation checkpoints with gradients in place draw another dropout mask in the backward pass",
        "_compiled/backend.py",
        "restore_rng_states(gm)",
        "pass",
        "test_generators.py::test_checkpoints_draw_the_masks_of_the_forward_pass_again",
    ),
    Fault(
        "recordings of graphs that torch keeps stay open after torch._dynamo.reset()",
        "_compiled/backend.py",
        "        compiled.close()",
        "        pass",
        "test_reset.py",
    ),
    Fault(
        "forward recordings share a memory pool",
        "_compiled/runner.py",
        'self._runtime.new_pool(f"{self.plan.part} graph") if self._has_own_pools else None',
        "None",
        "test_training.py::test_several_compiled_forwards_before_backward_match_eager",
    ),
    Fault(
        "outputs saved for backward are copied",
        "_compiled/split_runner.py",
        "if index < user_outputs else slots[node]",
        "if True else slots[node]",
        "test_partition.py::test_split_graph_clones_an_output_for_the_user_but_not_for_backward",
    ),
    Fault(
        "tensors kept by saved tensor hooks are overwritten",
        "_compiled/runner.py",
        "if self._saves and hooks_are_set():",
        "if False:",
        "test_saved_tensors.py::test_compiled_gradients_with_saved_tensor_hooks_match_eager",
    ),
    Fault(
        "parameters that move often are recaptured without limit",
        "_compiled/address_changes.py",
        "if any(times >= _OFTEN",
        "if False and any(times >= _OFTEN",
        "test_torch_features.py::test_parameters_with_a_new_address_on_every_step_are_copied",
    ),
    Fault(
        "wrappers with an effect are bypassed",
        "_compiled/bypass.py",
        "self._is_proven = self._proves(args, results, self._under_way.inner)",
        "self._is_proven = True",
        "test_bypass.py::test_replays_keep_aot_autograd_wrappers_for_mutations_and_views",
    ),
    Fault(
        "inputs that require grad bypass the wrapper that disables autograd",
        "_compiled/bypass.py",
        "if self._is_proven is False or torch.is_grad_enabled():",
        "if self._is_proven is False:",
        "test_bypass.py::test_aot_autograd_wrappers_are_bypassed_only_while_grad_mode_is_off",
    ),
    Fault(
        "views of a recording computed outside of it are not copied",
        "_compiled/split_runner.py",
        "values[slot] = own_copy(results[index])",
        "pass",
        "test_partition.py::test_output_views_computed_between_captured_pieces_are_copied",
    ),
    Fault(
        "effects of wrappers besides their outputs are bypassed",
        "_compiled/backend.py",
        "not aot.graph_facts().acts_besides",
        "True",
        "test_bypass.py::test_grad_mode_set_by_a_compiled_function_stays_set_after_replays",
    ),
    Fault(
        "a lock is taken before asking whether another thread's capture has to end first",
        "_compiled/split_runner.py",
        "if self._is_capturing() or (trying_threads and get_ident() in trying_threads):",
        "if False:",
        "test_two_threads.py::test_threads_do_not_wait_for_each_other",
    ),
)
