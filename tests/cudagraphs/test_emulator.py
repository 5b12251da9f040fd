"""The emulator of CUDA graphs on the CPU fails where CUDA would, so tests that pass on it are evidence for CUDA too."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from dynx import cudagraphs
from dynx._torch.ops.liveness import WeakMemory
from dynx.cudagraphs._runtime.emulator import Emulator
from dynx.cudagraphs._runtime.interface import no_clones
from dynx.cudagraphs._runtime.patching.pointer_scan import NotPatchable
from dynx.errors import CaptureFailed


def test_emulated_capture_executes_no_operators():
    x, counter = torch.ones(3), torch.zeros(1)
    state = torch.get_rng_state()

    def function(_):
        counter.add_(1)
        return x + torch.rand(3)

    captured = Emulator().capture(function)
    assert counter.item() == 0
    assert captured.outputs.isnan().all()
    assert torch.equal(torch.get_rng_state(), state)


def test_emulated_graph_may_restore_the_rng_state():
    """`torch.utils.checkpoint` does so around recomputation; on CUDA the graph sets the generator's offset back."""

    def function(_):
        first = torch.rand(3)
        state = torch.get_rng_state()
        second = torch.rand(3)
        last = torch.get_rng_state()
        torch.set_rng_state(state)
        again = torch.rand(2)
        torch.set_rng_state(last)
        return first, second, again

    captured = Emulator().capture(function)
    for number in range(3):
        torch.manual_seed(number)
        captured.replay()
        actual, after = [result.clone() for result in captured.outputs], torch.rand(1)
        torch.manual_seed(number)
        assert all(map(torch.equal, actual, function(None)))
        assert torch.equal(after, torch.rand(1))


@pytest.mark.parametrize("draws", [False, True])
def test_manual_seed_fails_an_emulated_capture(draws):
    def function(x):
        torch.manual_seed(123456)
        return torch.rand(3) if draws else torch.ones(3)

    with pytest.raises(CaptureFailed, match="random seed was set during a capture"):
        Emulator().capture(function)


def test_emulated_replay_reads_current_input_values_and_keeps_the_output_address():
    x = torch.ones(3)
    captured = Emulator().capture(lambda _: x * 2)
    address = captured.outputs.data_ptr()
    captured.replay()
    assert captured.outputs.tolist() == [2, 2, 2]
    x.fill_(5)
    assert captured.outputs.tolist() == [2, 2, 2]
    captured.replay()
    assert captured.outputs.tolist() == [10, 10, 10]
    assert captured.outputs.data_ptr() == address


def test_emulated_replay_ignores_rebound_python_references():
    """A replay reads the memory of the tensors that were read during capture."""
    held = [first := torch.ones(3)]
    captured = Emulator().capture(lambda _: held[0] * 2)
    held[0] = torch.full((3,), 7.0)
    captured.replay()
    assert captured.outputs.tolist() == (first * 2).tolist()


def test_emulated_replay_fills_intermediate_results_with_nan():
    between = []
    x = torch.ones(3)

    def function(_):
        added = x + 1
        between.append(WeakMemory(added))
        return added * 2

    captured = Emulator().capture(function)
    captured.replay()
    assert captured.outputs.tolist() == [4, 4, 4]
    assert between[0].tensor().isnan().all()


def test_emulated_replay_runs_no_python_code():
    calls = []
    captured = Emulator().capture(lambda _: calls.append(1) or torch.ones(3))
    captured.replay()
    assert len(calls) == 1


def test_emulated_replay_repeats_mutations_through_views():
    x = torch.zeros(2, 2)

    def function(_):
        x[0].add_(1)
        return x.view(4)

    captured = Emulator().capture(function)
    assert x.sum().item() == 0
    captured.replay()
    captured.replay()
    assert x.tolist() == [[2, 2], [0, 0]]
    assert captured.outputs.tolist() == [2, 2, 0, 0]


def test_emulated_replay_does_not_repeat_metadata_operators():
    """`vector @ matrix` runs a matrix product and then `squeeze_`; only the matrix product is a kernel."""
    vector, matrix = torch.ones(3), torch.eye(3)

    def function(_):
        turned = torch.stack([vector, vector * 2]).t_()
        return vector @ matrix, turned.sum(0), turned

    captured = Emulator().capture(function)
    for value in (1.0, 5.0):
        vector.fill_(value)
        captured.replay()
        assert [result.tolist() for result in captured.outputs] == [
            [value] * 3,
            [3 * value, 6 * value],
            [[value, 2 * value]] * 3,
        ]


def test_emulated_replays_advance_the_random_number_generator():
    captured = Emulator().capture(lambda _: torch.rand(3))
    torch.manual_seed(3)
    actual = []
    for _ in range(2):
        captured.replay()
        actual.append(captured.outputs.clone())
    torch.manual_seed(3)
    assert torch.equal(torch.stack(actual), torch.stack([torch.rand(3), torch.rand(3)]))


def test_an_emulated_replay_that_draws_nothing_keeps_what_other_threads_have_drawn():
    """There is one state for all threads: restoring it would let them draw the same numbers again."""
    others = []

    @torch.library.custom_op("dynx_tests::beside", mutates_args=())
    def beside(x: torch.Tensor) -> torch.Tensor:
        for draw in others:
            draw()
        return x + 1

    captured = Emulator().capture(lambda _: beside(torch.ones(3)))
    with ThreadPoolExecutor(1) as pool:
        others.append(lambda: pool.submit(torch.rand, 3).result())
        torch.manual_seed(3)
        captured.replay()
        after = torch.rand(3)
    others.clear()  # the operator stays registered, and with it what its function reads
    torch.manual_seed(3)
    torch.rand(3)
    assert torch.equal(after, torch.rand(3))


@pytest.mark.parametrize(
    "read", [torch.Tensor.item, torch.nonzero, bool, lambda x: x[x > 0]], ids=["item", "nonzero", "bool", "mask"]
)
def test_reading_a_tensor_value_fails_an_emulated_capture(read):
    with pytest.raises(CaptureFailed, match="reads a value"):
        Emulator().capture(lambda _: read(torch.ones(1)))


def test_emulated_graph_copies_inputs_from_the_tensors_passed_to_set_sources():
    captured = Emulator().capture(lambda copies: copies[0] * 2, [torch.ones(3)])
    for value in (5.0, 7.0):
        captured.set_sources([torch.full((3,), value)])
        captured.replay()
        assert captured.outputs.tolist() == [2 * value] * 3
    with pytest.raises(CaptureFailed, match="before its input and output tensors were set"):
        captured.replay()
    with pytest.raises(CaptureFailed, match="other sizes, strides or dtype"):
        captured.set_sources([torch.ones(6)[::2]])


def test_emulated_graph_reads_patched_inputs_from_the_tensors_passed_to_set_sources():
    emulator, args = Emulator(), torch.ones(2, 3)
    captured = emulator.capture_patched(lambda inputs: inputs[0].t() * 2, [args], no_clones, None)
    for value in (5.0, 7.0):
        captured.set_sources([torch.full((2, 3), value)])
        captured.replay()
        assert captured.outputs.tolist() == [[2 * value] * 2] * 3
    with pytest.raises(CaptureFailed, match="before its input and output tensors were set"):
        captured.replay()
    with pytest.raises(NotPatchable, match="aliases an input"):
        emulator.capture_patched(lambda inputs: (inputs[0].t(),), [args], no_clones, None)


def test_emulated_graph_copies_outputs_to_the_tensors_passed_to_set_targets():
    held = torch.ones(3)
    captured = Emulator().capture(lambda _: held * 2, select_clones=lambda outputs: [outputs])
    first, second = torch.empty(3), torch.empty(3)
    for target in (first, second):
        captured.set_targets([target])
        captured.replay()
        held.add_(1)
    assert (first.tolist(), second.tolist()) == ([2, 2, 2], [4, 4, 4])
    with pytest.raises(CaptureFailed, match="before its input and output tensors were set"):
        captured.replay()
    with pytest.raises(CaptureFailed, match="other sizes, strides or dtype"):
        captured.set_targets([torch.ones(6)[::2]])


def test_emulated_graphs_in_one_memory_pool_overwrite_each_other():
    """A capture may place outputs in pool memory that earlier graphs use for intermediate results."""
    emulator, x = Emulator(), torch.ones(3)
    first, second = (emulator.capture(lambda _: (x + 1) * 2) for _ in range(2))
    in_other_pool = emulator.capture(lambda _: (x + 1) * 2, pool=emulator.new_pool(""))
    for captured in (first, second, in_other_pool):
        captured.replay()
        assert captured.outputs.tolist() == [4, 4, 4]
    first.replay()
    assert second.outputs.isnan().all()
    assert in_other_pool.outputs.tolist() == [4, 4, 4]


def test_emulated_replay_overwrites_released_outputs():
    """The graph copies released outputs to other tensors, so the memory of the outputs returns to the pool."""
    emulator, x = Emulator(), torch.ones(3)
    captured = emulator.capture(lambda _: (x + 1, x + 2), select_clones=lambda outputs: outputs[:1])
    captured.release(captured.outputs[:1])
    captured.set_targets([target := torch.empty(3)])
    captured.replay()
    assert target.tolist() == [2, 2, 2]
    assert captured.outputs[0].isnan().all()
    assert captured.outputs[1].tolist() == [3, 3, 3]


def test_failed_emulated_capture_restores_mutated_tensors():
    x = torch.ones(3)

    def function(_):
        x.add_(1)
        raise ValueError("of the function")

    with pytest.raises(ValueError, match="of the function"):
        Emulator().capture(function)
    assert x.tolist() == [1, 1, 1]


def test_replay_of_a_closed_emulated_graph_fails():
    captured = Emulator().capture(lambda _: torch.ones(3))
    outputs = captured.outputs
    captured.close()
    assert outputs.isnan().all()
    with pytest.raises(CaptureFailed, match=r"after close\(\) had released it"):
        captured.replay()


def test_emulated_replay_during_another_capture_fails():
    x = torch.ones(3)
    inner = Emulator().capture(lambda _: x * 2)
    with pytest.raises(CaptureFailed, match="replayed while another graph was captured"):
        Emulator().capture(lambda _: inner.replay())


def test_emulated_replay_fails_after_a_tensor_that_it_reads_is_freed():
    """A CUDA graph does not keep the memory that it uses alive."""
    held = [torch.ones(3)]
    captured = Emulator().capture(lambda _: held[0] * 2)
    captured.replay()
    held.clear()
    with pytest.raises(CaptureFailed, match="reads the memory of a freed tensor"):
        captured.replay()


def test_memory_of_a_replay_that_python_keeps_is_not_reused():
    """An autograd function may keep a tensor as an attribute of `ctx`: the memory of the pool is not free."""
    x, kept = torch.ones(3), []

    def function(_):
        kept.append(x + 1)
        return (x * 2).sin()

    emulator = Emulator()
    pool = emulator.new_pool("")
    graph = emulator.capture(function, pool=pool)
    graph.replay()
    assert kept[0].tolist() == [2.0] * 3
    x.fill_(3)
    graph.replay()
    assert kept[0].tolist() == [4.0] * 3
    memory = WeakMemory(kept.pop())
    graph.replay()
    assert memory.tensor().tolist() == [4.0] * 3  # free now, but nothing else has been captured in the pool
    emulator.capture(lambda _: x + 1, pool=pool)
    graph.replay()
    assert memory.tensor().isnan().all()


def test_tensors_without_elements_may_be_created_in_a_capture():
    """Caches of transformers begin as `torch.tensor([])`; on CUDA they need no kernel."""
    x = torch.ones(2, 3)
    graph = Emulator().capture(lambda _: torch.cat([torch.tensor([]), x[:0].flatten(), x.flatten()]) * 2)
    x.fill_(3)
    graph.replay()
    assert graph.outputs.tolist() == [6.0] * 6


def test_set_sources_does_not_redirect_copies_made_by_the_captured_function():
    source, args = torch.ones(3), torch.ones(3)

    def function(copies):
        doubled = copies[0] * 2
        copies[0].copy_(source)
        return doubled, copies[0]

    captured = Emulator().capture(function, [args])
    captured.set_sources([torch.full((3,), 5.0)])
    captured.replay()
    assert [result.tolist() for result in captured.outputs] == [[10, 10, 10], [1, 1, 1]]


class Numbers(torch.nn.Module):
    """Makes tensors of numbers in Python, as models do to compute scales, and adds to one of them."""

    def forward(self, x):
        scale = torch.sqrt(torch.tensor(x.shape[-1], dtype=torch.float) * 2)
        total = torch.tensor(0.0)
        total += scale
        return x / scale + total


def test_numbers_that_python_code_makes_tensors_of_are_constants():
    """As for CUDA, where they are tensors on the CPU."""
    model = Numbers()
    run = cudagraphs.fast_path(model, config=cudagraphs.Config(runtime="emulator"))
    for number in range(5):
        x = torch.full((3,), float(number))
        torch.testing.assert_close(run(x), model(x))
    assert cudagraphs.stats().replays >= 3


def is_stream_capturing():
    try:
        return torch.cuda.is_current_stream_capturing()
    except RuntimeError:  # torch was built without CUDA
        return False


class Asking(torch.nn.Module):
    def forward(self, x):
        if not is_stream_capturing() and x.sum() > 1e6:
            return x
        return x * 2


def test_optimizers_do_not_ask_for_capturable_parameters_of_the_cpu(monkeypatch):
    """As torch's do where there is a CUDA device."""

    def ask(optimizer):
        if is_stream_capturing() and not all(group["capturable"] for group in optimizer.param_groups):
            raise RuntimeError("Attempting CUDA graph capture of step(), but param_groups' capturable is False.")

    monkeypatch.setattr(torch.optim.Optimizer, "_accelerator_graph_capture_health_check", ask)
    model = torch.nn.Linear(4, 1)
    optimizer, emulated = torch.optim.AdamW(model.parameters(), fused=True), cudagraphs.Config(runtime="emulator")
    step = cudagraphs.train_step(lambda x: model(x).square().mean(), model.parameters(), optimizer=optimizer, config=emulated)
    for _ in range(4):
        step(torch.randn(2, 4))
    assert cudagraphs.stats().replays > 0
    assert torch.optim.Optimizer._accelerator_graph_capture_health_check is ask


def test_libraries_see_that_the_emulator_captures():
    """Transformers, for example, reads values to create a mask, but not in a capture."""
    before = torch.cuda.is_current_stream_capturing
    run = cudagraphs.fast_path(Asking(), config=cudagraphs.Config(runtime="emulator"))
    for number in range(4):
        x = torch.full((3,), float(number))
        torch.testing.assert_close(run(x), x * 2)
    assert not cudagraphs.stats().skips
    assert torch.cuda.is_current_stream_capturing is before
