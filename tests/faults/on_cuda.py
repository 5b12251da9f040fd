"""Faults that only tests on a GPU notice: streams, devices, workspaces and threads, which the emulator does not have."""

from __future__ import annotations

from fault import Fault

TORCH = "../_torch/ops"

FAULTS = (
    Fault(
        "a captured backward pass runs in the thread of all backward passes",
        "_runtime/capture_lock.py",
        "torch.autograd.set_multithreading_enabled(False)",
        "torch.autograd.set_multithreading_enabled(True)",
        "test_two_threads.py",
        needs_cuda=True,
    ),
    Fault(
        "later backward passes use gradient accumulators of the stream of a capture",
        "_functions/forward_backward.py",
        "renew_accumulators(not_replaced)  # those",
        "list(not_replaced)  # those",
        "test_two_threads.py",
        needs_cuda=True,
    ),
    Fault(
        "captured products use a workspace that others free",
        "_runtime/cuda.py",
        "self._stream.make_workspaces()",
        "pass",
        "test_other_work.py",
        needs_cuda=True,
    ),
    Fault(
        "workspaces that were freed during a capture are not noticed",
        "_runtime/cuda.py",
        "self._stream.check_workspaces()",
        "pass",
        "test_other_work.py",
        needs_cuda=True,
    ),
    Fault(
        "workspaces that a capture has made in the memory of its graph are used by the next one",
        "_runtime/capture_stream.py",
        "clear_workspaces()  # those",
        "self.order.synchronize()  # those",
        "test_other_work.py",
        needs_cuda=True,
    ),
    Fault(
        "replays on two streams do not wait for each other",
        "_runtime/stream_order.py",
        "self._stream(stream).wait_event(event)",
        "event.query()",
        "test_other_work.py",
        needs_cuda=True,
    ),
    Fault(
        "a replay waits for the stream that captures",
        "_runtime/capture_stream.py",
        "self.order.last = None",
        "self.order.last = self.stream.cuda_stream",
        "test_two_threads.py",
        needs_cuda=True,
    ),
    Fault(
        "memory is given back while another stream still replays",
        "_runtime/stream_order.py",
        "self._stream(self.last).synchronize()",
        "self._stream(self.last).query()",
        "test_other_work.py",
        needs_cuda=True,
    ),
    Fault(
        "inputs that are copied to before a replay are given back while another stream reads them",
        "_runtime/stream_order.py",
        "tensor.record_stream(self._stream(stream))",
        "self._stream(stream)",
        "test_other_work.py",
        needs_cuda=True,
    ),
    Fault(
        "the generator of the device stays marked as captured after a capture that failed",
        f"{TORCH}/cuda_graphs.py",
        'graph.capture_begin(capture_error_mode="thread_local")\n        graph.capture_end()',
        "pass",
        "test_other_work.py",
        needs_cuda=True,
    ),
    Fault(
        "torch's list of memory frees the ids of pools",
        f"{TORCH}/memory_pools.py",
        'segments() if tuple(segment["segment_pool_id"]) == tuple(self.handle)',
        '__import__("torch").cuda.memory_snapshot(self.handle)',
        "test_other_work.py",
        needs_cuda=True,
    ),
    Fault(
        "a backward pass draws other random numbers than its forward pass",
        "_runtime/cuda_rng.py",
        "generator.manual_seed(seed).set_offset(offset)",
        "pass",
        "test_generators.py",
        needs_cuda=True,
    ),
    Fault(
        "generators among the inputs are not registered with the graph",
        "_runtime/cuda.py",
        "graph.register_generator_state(generator)",
        "pass",
        "test_generators.py",
        needs_cuda=True,
    ),
    Fault(
        "addresses that a graph stores are not found",
        "_runtime/patching/verify.py",
        'raise NotPatchable("the graph stores the address of an input, which patching does not change")',
        "pass",
        "test_patched_inputs.py",
        needs_cuda=True,
    ),
)
