"""Faults in `dynx/cudagraphs/_runtime/`, and the test files that have to fail for each."""

from __future__ import annotations

from fault import Fault

FAULTS = (
    Fault(
        "libraries do not see that the emulator captures",
        "_runtime/emulator.py",
        "report_as_capturing(self.is_capturing), recorder",
        "recorder",
        "test_emulator.py::test_libraries_see_that_the_emulator_captures",
    ),
    Fault(
        "tensors that Python code makes of numbers keep what an earlier replay added to them",
        "_runtime/emulator.py",
        "number.copy_(value)",
        "pass",
        "test_emulator.py::test_numbers_that_python_code_makes_tensors_of_are_constants",
    ),
    Fault(
        "a replay that draws nothing restores the state of random numbers at its begin",
        "_runtime/emulator.py",
        "if self.captured_states.changes:",
        "if True:",
        "test_emulator.py::test_an_emulated_replay_that_draws_nothing_keeps_what_other_threads_have_drawn",
    ),
    Fault(
        "the end of an input is taken for the beginning of the next one",
        "_runtime/patching/pointer_scan.py",
        "if first.start <= word <= first.end and second_word - second.start == word - first.start",
        "if first.start <= word < first.end",
        "test_pointer_scan.py::test_the_end_of_an_input_is_not_taken_for_the_beginning_of_the_next_one",
    ),
    Fault(
        "words that differ between captures with the second inputs are not taken for random ones",
        "_runtime/patching/pointer_scan.py",
        "is_stable = is_first_stable and is_second_stable",
        "is_stable = is_first_stable",
        "test_pointer_scan.py::test_scan_ignores_words_that_differ_between_captures_with_the_second_inputs",
    ),
    Fault(
        "a function that draws from a generator of its own is captured",
        "_runtime/rng_errors.py",
        "any(is_same_generator(leaf, known) for known in registered)",
        "any(True for known in registered)",
        "test_generators.py::test_a_function_that_draws_from_a_generator_of_its_own_is_not_captured",
    ),
    Fault(
        "an activation checkpoint draws the random numbers that its forward pass drew in the capture",
        "_runtime/emulator.py",
        "None if self._forward is None else self._forward._replayed_states",
        "None if self._forward is None else self._forward.captured_states",
        "test_generators.py::test_checkpoints_draw_the_masks_of_the_forward_pass_again",
    ),
    Fault(
        "a backward pass that draws again and also new random numbers is captured",
        "_runtime/emulated_rng.py",
        "if len(self._drawn) > 1:",
        "if len(self._drawn) > 2:",
        "test_generators.py::test_a_backward_pass_that_draws_again_and_also_new_numbers_is_not_captured",
    ),
    Fault(
        "mutations of CPU tensors are allowed during a capture for CUDA",
        "_runtime/cpu_ops.py",
        "if on_cpu and not is_device_copy:",
        "if not on_cpu and not is_device_copy:",
        "test_cpu_ops.py::test_cpu_ops_on_existing_tensors_and_cpu_random_ops_fail_the_capture",
    ),
    Fault(
        "reads of CPU tensors are taken for reads of constants",
        "_runtime/cpu_ops.py",
        "elif are_constant:",
        "else:",
        "test_cpu_ops.py::test_cpu_ops_on_existing_tensors_and_cpu_random_ops_fail_the_capture",
    ),
    Fault(
        "any differing word is taken for padding",
        "_runtime/patching/pointer_scan.py",
        "part = None if is_internal else _stale_part(word, second_word, device_memory, host_memory)",
        "part = slice(0, 0)",
        "test_pointer_scan.py::test_scan_ignores_words_that_differ_between_captures_with_the_second_inputs",
    ),
    Fault(
        "a graph is destroyed in the capture of another one",
        "_runtime/capture_lock.py",
        "if capturing_threads or not _destroy_next()",
        "if not _destroy_next()",
        "test_deleted_graphs.py::test_graphs_are_deleted_by_many_threads",
    ),
    Fault(
        "a graph is destroyed before its replays have ended",
        "_runtime/capture_lock.py",
        "if not wait():",
        "if wait() is None:",
        "test_deleted_graphs.py::test_a_graph_is_deleted_while_it_cannot_be_waited_for",
    ),
    Fault(
        "a graph is deleted while others refer to it, and later with the last of them",
        "_runtime/capture_lock.py",
        "if getrefcount(graph) > _OWN_REFERENCES:",
        "if getrefcount(graph) > 99:",
        "test_deleted_graphs.py::test_the_last_reference_to_a_destroyed_graph_is_deleted_while_another_thread_captures",
    ),
    Fault(
        "a failure that the function catches counts as a success",
        "_runtime/failures.py",
        "if self.first is None or error[0] is not None:",
        "if error is not None:",
        "test_failures.py::test_a_failure_that_the_function_catches_is_no_success",
    ),
    Fault(
        "sparse tensors are captured",
        "_runtime/failures.py",
        "leaf.layout in _SPARSE",
        "leaf.layout is None",
        "test_failures.py::test_sparse_gradients_run_uncaptured",
    ),
)
