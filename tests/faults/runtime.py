"""Faults in `dynx/cudagraphs/_runtime/`, and the test files that have to fail for each."""

from __future__ import annotations

from fault import Fault

FAULTS = (
    Fault(
        "libraries do not see that the emulator captures",
        "_runtime/emulator.py",
        "report_as_capturing(self.is_capturing), recorder",
        "recorder",
        "test_emulator.py test_decoding.py",
    ),
    Fault(
        "tensors that Python code makes of numbers keep what an earlier replay added to them",
        "_runtime/emulator.py",
        "number.copy_(value)",
        "pass",
        "test_emulator.py",
    ),
    Fault(
        "a replay that draws nothing restores the state of random numbers at its begin",
        "_runtime/emulator.py",
        "if self.captured_states.changes:",
        "if True:",
        "test_emulator.py",
    ),
    Fault(
        "the end of an input is taken for the beginning of the next one",
        "_runtime/patching/pointer_scan.py",
        "if first.start <= word <= first.end and second_word - second.start == word - first.start",
        "if first.start <= word < first.end",
        "test_pointer_scan.py",
    ),
    Fault(
        "words that differ between captures with the second inputs are not taken for random ones",
        "_runtime/patching/pointer_scan.py",
        "is_stable = is_first_stable and is_second_stable",
        "is_stable = is_first_stable",
        "test_pointer_scan.py",
    ),
    Fault(
        "a function that draws from a generator of its own is captured",
        "_runtime/rng_errors.py",
        "any(is_same_generator(leaf, known) for known in registered)",
        "any(True for known in registered)",
        "test_generators.py",
    ),
    Fault(
        "an activation checkpoint draws the random numbers that its forward pass drew in the capture",
        "_runtime/emulator.py",
        "None if self._forward is None else self._forward._replayed_states",
        "None if self._forward is None else self._forward.captured_states",
        "test_generators.py",
    ),
    Fault(
        "a backward pass that draws again and also new random numbers is captured",
        "_runtime/emulated_rng.py",
        "if len(self._drawn) > 1:",
        "if len(self._drawn) > 2:",
        "test_generators.py",
    ),
    Fault(
        "mutations of CPU tensors are allowed during a capture for CUDA",
        "_runtime/cpu_ops.py",
        "if on_cpu and not is_device_copy:",
        "if not on_cpu and not is_device_copy:",
        "test_cpu_ops.py",
    ),
    Fault(
        "reads of CPU tensors are taken for reads of constants",
        "_runtime/cpu_ops.py",
        "elif are_constant:",
        "else:",
        "test_cpu_ops.py",
    ),
    Fault(
        "any differing word is taken for padding",
        "_runtime/patching/pointer_scan.py",
        "part = None if is_internal else _stale_part(word, second_word, device_memory, host_memory)",
        "part = slice(0, 0)",
        "test_pointer_scan.py",
    ),
    Fault(
        "a graph is destroyed in the capture of another one",
        "_runtime/capture_lock.py",
        "if capturing_threads or not _destroy_next()",
        "if not _destroy_next()",
        "test_deleted_graphs.py",
    ),
    Fault(
        "a graph is destroyed before its replays have ended",
        "_runtime/capture_lock.py",
        "if not wait():",
        "if wait() is None:",
        "test_deleted_graphs.py",
    ),
    Fault(
        "a graph is deleted while others refer to it, and later with the last of them",
        "_runtime/capture_lock.py",
        "if getrefcount(graph) > _OWN_REFERENCES:",
        "if getrefcount(graph) > 99:",
        "test_deleted_graphs.py",
    ),
    Fault(
        "a failure that the function catches counts as a success",
        "_runtime/failures.py",
        "if self.first is None or error[0] is not None:",
        "if error is not None:",
        "test_failures.py",
    ),
    Fault(
        "sparse tensors are captured",
        "_runtime/failures.py",
        "leaf.layout in _SPARSE",
        "leaf.layout is None",
        "test_failures.py",
    ),
)
