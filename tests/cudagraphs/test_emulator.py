"""The emulator fails where CUDA would, so that a test which passes on it means something."""

from __future__ import annotations

import pytest
import torch

from dynx.cudagraphs._runtime.emulator import Emulator
from dynx.cudagraphs._runtime.interface import no_clones
from dynx.cudagraphs._runtime.pointer_scan import NotPatchable
from dynx.errors import CaptureFailed


def test_capture_executes_nothing():
    x, counter = torch.ones(3), torch.zeros(1)
    state = torch.get_rng_state()

    def function(_):
        counter.add_(1)
        return x + torch.rand(3)

    captured = Emulator().capture(function)
    assert counter.item() == 0
    assert captured.outputs.isnan().all()
    assert torch.equal(torch.get_rng_state(), state)


def test_rng_state_can_be_restored_inside_a_graph():
    """As `checkpoint` does before and after recomputation; on CUDA the graph moves the offset of the generator back."""

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
def test_seeding_during_capture_is_refused(draws):
    def function(x):
        torch.manual_seed(123456)
        return torch.rand(3) if draws else torch.ones(3)

    with pytest.raises(CaptureFailed, match="random seed was set during a capture"):
        Emulator().capture(function)


def test_replay_reads_current_memory_and_writes_to_the_same_address():
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


def test_rebinding_a_name_does_not_change_a_graph():
    """A replay reads only memory that was captured."""
    held = [first := torch.ones(3)]
    captured = Emulator().capture(lambda _: held[0] * 2)
    held[0] = torch.full((3,), 7.0)
    captured.replay()
    assert captured.outputs.tolist() == (first * 2).tolist()


def test_intermediate_results_are_garbage_after_a_replay():
    between = []
    x = torch.ones(3)

    def function(_):
        between.append(x + 1)
        return between[0] * 2

    captured = Emulator().capture(function)
    captured.replay()
    assert captured.outputs.tolist() == [4, 4, 4]
    assert between[0].isnan().all()


def test_python_runs_only_during_capture():
    calls = []
    captured = Emulator().capture(lambda _: calls.append(1) or torch.ones(3))
    captured.replay()
    assert len(calls) == 1


def test_views_and_mutations_are_replayed():
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


def test_operators_that_only_change_a_shape_are_not_replayed():
    """A vector times a matrix is `squeeze_` of a product, of which the product alone is a kernel."""
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


def test_replays_advance_the_generator():
    captured = Emulator().capture(lambda _: torch.rand(3))
    torch.manual_seed(3)
    actual = []
    for _ in range(2):
        captured.replay()
        actual.append(captured.outputs.clone())
    torch.manual_seed(3)
    assert torch.equal(torch.stack(actual), torch.stack([torch.rand(3), torch.rand(3)]))


@pytest.mark.parametrize(
    "read", [torch.Tensor.item, torch.nonzero, bool, lambda x: x[x > 0]], ids=["item", "nonzero", "bool", "mask"]
)
def test_reading_a_value_fails_the_capture(read):
    with pytest.raises(CaptureFailed, match="reads a value"):
        Emulator().capture(lambda _: read(torch.ones(1)))


def test_copies_in_a_graph_read_from_the_sources_set():
    captured = Emulator().capture(lambda copies: copies[0] * 2, [torch.ones(3)])
    for value in (5.0, 7.0):
        captured.set_sources([torch.full((3,), value)])
        captured.replay()
        assert captured.outputs.tolist() == [2 * value] * 3
    with pytest.raises(CaptureFailed, match="still those of an earlier call"):
        captured.replay()
    with pytest.raises(CaptureFailed, match="other sizes, strides or dtype"):
        captured.set_sources([torch.ones(6)[::2]])


def test_patched_inputs_are_read_at_the_addresses_set():
    emulator, args = Emulator(), torch.ones(2, 3)
    captured = emulator.capture_patched(lambda inputs: inputs[0].t() * 2, [args], no_clones, None)
    for value in (5.0, 7.0):
        captured.set_sources([torch.full((2, 3), value)])
        captured.replay()
        assert captured.outputs.tolist() == [[2 * value] * 2] * 3
    with pytest.raises(CaptureFailed, match="still those of an earlier call"):
        captured.replay()
    with pytest.raises(NotPatchable, match="aliases an input"):
        emulator.capture_patched(lambda inputs: (inputs[0].t(),), [args], no_clones, None)


def test_results_are_copied_to_the_targets_set():
    held = torch.ones(3)
    captured = Emulator().capture(lambda _: held * 2, select_clones=lambda outputs: [outputs])
    first, second = torch.empty(3), torch.empty(3)
    for target in (first, second):
        captured.set_targets([target])
        captured.replay()
        held.add_(1)
    assert (first.tolist(), second.tolist()) == ([2, 2, 2], [4, 4, 4])
    with pytest.raises(CaptureFailed, match="still those of an earlier call"):
        captured.replay()
    with pytest.raises(CaptureFailed, match="other sizes, strides or dtype"):
        captured.set_targets([torch.ones(6)[::2]])


def test_graphs_of_one_pool_overwrite_each_other():
    """A capture may reuse memory of a pool that earlier graphs use for intermediate results."""
    emulator, x = Emulator(), torch.ones(3)
    first, second = (emulator.capture(lambda _: (x + 1) * 2) for _ in range(2))
    in_other_pool = emulator.capture(lambda _: (x + 1) * 2, pool=emulator.new_pool())
    for captured in (first, second, in_other_pool):
        captured.replay()
        assert captured.outputs.tolist() == [4, 4, 4]
    first.replay()
    assert second.outputs.isnan().all()
    assert in_other_pool.outputs.tolist() == [4, 4, 4]


def test_released_results_are_overwritten():
    """The graph itself copies them to their targets, so their memory returns to the pool."""
    emulator, x = Emulator(), torch.ones(3)
    captured = emulator.capture(lambda _: (x + 1, x + 2), select_clones=lambda outputs: outputs[:1])
    captured.release(captured.outputs[:1])
    captured.set_targets([target := torch.empty(3)])
    captured.replay()
    assert target.tolist() == [2, 2, 2]
    assert captured.outputs[0].isnan().all()
    assert captured.outputs[1].tolist() == [3, 3, 3]


def test_failed_capture_restores_memory():
    x = torch.ones(3)

    def function(_):
        x.add_(1)
        raise ValueError("of the function")

    with pytest.raises(ValueError, match="of the function"):
        Emulator().capture(function)
    assert x.tolist() == [1, 1, 1]


def test_closed_graph_cannot_be_replayed():
    captured = Emulator().capture(lambda _: torch.ones(3))
    outputs = captured.outputs
    captured.close()
    assert outputs.isnan().all()
    with pytest.raises(CaptureFailed, match="after its recording was closed"):
        captured.replay()


def test_replay_during_another_capture_fails():
    x = torch.ones(3)
    inner = Emulator().capture(lambda _: x * 2)
    with pytest.raises(CaptureFailed, match="replayed while another graph was captured"):
        Emulator().capture(lambda _: inner.replay())


def test_replay_fails_after_its_memory_was_freed():
    """A CUDA graph does not keep the memory that it uses alive."""
    held = [torch.ones(3)]
    captured = Emulator().capture(lambda _: held[0] * 2)
    captured.replay()
    held.clear()
    with pytest.raises(CaptureFailed, match="reads the memory of a freed tensor"):
        captured.replay()


def test_copies_inside_the_function_are_not_input_copies():
    source, args = torch.ones(3), torch.ones(3)

    def function(copies):
        doubled = copies[0] * 2
        copies[0].copy_(source)
        return doubled, copies[0]

    captured = Emulator().capture(function, [args])
    captured.set_sources([torch.full((3,), 5.0)])
    captured.replay()
    assert [result.tolist() for result in captured.outputs] == [[10, 10, 10], [1, 1, 1]]
