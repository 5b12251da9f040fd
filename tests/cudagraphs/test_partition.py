"""A graph with operators that cannot be captured is split into pieces, and returns the same results."""

from __future__ import annotations

import copy
from contextlib import nullcontext

import pytest
import torch
from support.agreement import assert_agree, assert_same_grads
from support.devices import on_cuda

from dynx import cudagraphs
from dynx.cudagraphs._compiled import backend
from dynx.cudagraphs._compiled.split_runner import SplitRunner
from dynx.cudagraphs._graph.split import split
from dynx.cudagraphs._runtime.emulator import Emulator
from dynx.errors import CaptureError, DynxWarning
from dynx.records.cudagraphs import GraphInput, GraphPlan


@torch.library.custom_op("dynx_tests::unsafe", mutates_args=(), tags=(torch.Tag.cudagraph_unsafe,))
def unsafe(x: torch.Tensor) -> torch.Tensor:
    return x + x.flatten()[0].item()


@unsafe.register_fake
def _(x):
    return torch.empty_like(x)


@torch.library.custom_op("dynx_tests::unsafe_mutation", mutates_args=("x",), tags=(torch.Tag.cudagraph_unsafe,))
def unsafe_mutation(x: torch.Tensor) -> None:
    x.add_(x.flatten()[0].item())


unsafe.register_autograd(lambda ctx, gradient: unsafe(gradient))


@pytest.fixture
def pieces(monkeypatch):
    """For each graph that is split, whether each of its pieces is captured."""
    captured = []
    describe_pieces = backend.describe_pieces

    def describe_and_record(*args):
        described = describe_pieces(*args)
        captured.append([not piece.why_uncaptured for piece in described] or None)
        return described

    monkeypatch.setattr("dynx.cudagraphs._compiled.backend.describe_pieces", describe_and_record)
    return captured


def elementwise(x):
    return x.sin().cos().exp().tanh()


def agree(run, eager, device, calls=5):
    assert_agree(run, eager, lambda: (torch.randn(3, 4, device=device),), calls=calls, grad_mode=nullcontext)


def chain(x):
    return elementwise(unsafe(elementwise(x)))


def unsafe_in_parallel(x):
    """Run unsafe operators that do not depend on each other: they share a piece."""
    a, b = elementwise(x), elementwise(x + 1)
    return elementwise(unsafe(a) + unsafe(b))


def unsafe_in_sequence(x):
    return elementwise(unsafe(elementwise(unsafe(elementwise(x)))))


def outputs_of_all_pieces(x):
    a = elementwise(x)
    b = unsafe(a)
    c = elementwise(b)
    return a, b, c, a + c, 7, x


def unsafe_first_and_last(x):
    return unsafe(elementwise(unsafe(x)))


def trailing_pieces_too_small(x):
    """End in a piece with too few kernels to be worth a replay."""
    return unsafe(unsafe(elementwise(x)) + 1)


FUNCTIONS = {
    chain: [True, False, True],
    unsafe_in_parallel: [True, False, True],
    unsafe_in_sequence: [True, False, True, False, True],
    outputs_of_all_pieces: [True, False, True],
    unsafe_first_and_last: [False, True, False],
    trailing_pieces_too_small: [True, False, False, False],
}


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)
def test_graph_with_uncapturable_operators_is_split_into_the_fewest_pieces(compiled, device, pieces, function):
    agree(compiled(function), function, device)
    assert pieces == [FUNCTIONS[function]]
    assert cudagraphs.stats().recordings == sum(FUNCTIONS[function])
    assert cudagraphs.stats().replays == 4 * sum(FUNCTIONS[function])


@pytest.mark.parametrize("outputs", ["alias", "static"])
def test_alias_and_static_outputs_of_split_graphs_match_eager(compiled, device, outputs):
    agree(compiled(outputs_of_all_pieces, outputs=outputs), outputs_of_all_pieces, device)


def test_later_replays_do_not_overwrite_cloned_outputs_of_split_graphs(compiled, device):
    run = compiled(outputs_of_all_pieces)
    x = [torch.randn(3, 4, device=device) for _ in range(5)]
    results = [run(tensor) for tensor in x]
    torch.testing.assert_close(results, [outputs_of_all_pieces(tensor) for tensor in x])


def test_output_views_computed_between_captured_pieces_are_copied(compiled, device):
    """The size of the view depends on data, so the view is computed uncaptured, over memory of a captured piece."""

    def function(x):
        y = elementwise(x)
        return y[: y.nonzero().shape[0] // 12], elementwise(y * 2)

    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True), torch.no_grad():
        run = compiled(function)
        args = [torch.full((3, 4), step + 1.0, device=device) for step in range(4)]
        results = [run(x)[0] for x in args]
        assert cudagraphs.stats().replays > 0
    torch.testing.assert_close(results, [function(x)[0] for x in args])


@torch.library.custom_op("dynx_tests::calls_the_graph", mutates_args=(), tags=(torch.Tag.cudagraph_unsafe,))
def calls_the_graph(x: torch.Tensor) -> torch.Tensor:
    if len(_callables) > 3:
        return x.clone()
    _callables.append(x)
    try:
        return _callables[0](x * 0.5 + len(_callables)).clone()
    finally:
        _callables.pop()


_callables = []


@calls_the_graph.register_fake
def _(x):
    return torch.empty_like(x)


@torch.no_grad()
def test_split_graph_with_an_operator_that_calls_it_again_matches_eager(compiled, device):
    def function(x):
        y = elementwise(x)
        return elementwise(y + calls_the_graph(y))

    run = compiled(function)
    for step in range(6):
        x = torch.full((3, 4), step / 4, device=device)
        actual = []
        for fn in (run, function):
            _callables[:] = [fn]
            actual.append(fn(x))
        torch.testing.assert_close(*actual)


def test_dropout_in_a_split_graph_matches_eager(compiled, device, pieces):
    def function(x):
        a = unsafe(torch.nn.functional.dropout(x))
        return elementwise(torch.nn.functional.dropout(x + 1)), a, elementwise(a)

    agree(compiled(function), function, device)


def test_random_operators_of_split_graphs_keep_program_order(compiled, device):
    """The second dropout depends on no other piece; if it ran first, it would draw the first dropout's random numbers."""

    def function(x):
        first = torch.nn.functional.dropout(unsafe(elementwise(x)))
        second = torch.nn.functional.dropout(x)
        return elementwise(first), elementwise(second)

    agree(compiled(function), function, device)


def test_split_graph_reads_an_input_before_it_is_mutated(compiled, device):
    def function(x):
        before = unsafe(x)
        x.mul_(elementwise(x))
        return before

    agree(compiled(function), function, device)


def test_tensors_saved_for_backward_by_split_graphs_keep_their_address(compiled, device):
    weight = torch.ones(4, device=device, requires_grad=True)
    run = compiled(lambda x: elementwise(unsafe(elementwise(x * weight))))
    for _ in range(5):
        x = torch.randn(3, 4, device=device)
        weight.grad = None
        run(x).sum().backward()
        actual, weight.grad = weight.grad, None
        elementwise(unsafe(elementwise(x * weight))).sum().backward()
        torch.testing.assert_close(actual, weight.grad)
    assert cudagraphs.stats().recordings == 4, "two pieces forward, two backward: saved tensors have one address"


def test_split_graph_clones_an_output_for_the_user_but_not_for_backward():
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    result = graph.call_function(torch.sin, (x,))
    graph.output((result, result))
    gm = torch.fx.GraphModule({}, graph)
    (piece,) = split(gm, [[result]], 1)
    assert (piece.results, piece.user_outputs) == ((result, result), 1)
    plan = GraphPlan("forward", (GraphInput("x", "dynamic", "an argument"),), 1)
    run = SplitRunner(gm, [(piece, lambda args: ["copy", "the output itself"])], plan, Emulator(), clones=True)
    assert run([1]) == ["copy", "the output itself"]


def test_mutations_in_split_graphs_keep_program_order(compiled, device, pieces):
    def function(x):
        before = elementwise(x)
        unsafe_mutation(x)
        after = elementwise(x)
        x.mul_(2)
        return before, after, elementwise(x)

    agree(compiled(function), function, device)


def test_split_graph_with_dynamic_shapes_matches_eager(compiled, device):
    run = compiled(chain, dynamic=True)
    for rows in (3, 4, 3, 4, 5, 3):
        x = torch.randn(rows, 4, device=device)
        torch.testing.assert_close(run(x), chain(x))


def test_data_dependent_sizes_split_the_graph(compiled, device, pieces):
    def function(x):
        a = elementwise(x)
        return elementwise(a[a > 0.6]).sum(), elementwise(a + 1)

    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        agree(compiled(function), function, device)
    assert pieces == [[True, False, False]], "the pieces after the data-dependent size are too small"


def test_tensor_item_splits_the_graph(compiled, device):
    def function(x):
        n = elementwise(x).sum().item()
        return elementwise(x * n)

    with torch._dynamo.config.patch(capture_scalar_outputs=True):
        agree(compiled(function), function, device)


@on_cuda
def test_cpu_operators_split_the_graph(compiled, device, pieces):
    def function(x):
        return elementwise(elementwise(elementwise(x).cpu()).cuda())

    agree(compiled(function), function, device)
    assert pieces == [[True, False, True]]


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = torch.nn.Linear(4, 8), torch.nn.Linear(8, 2)

    def forward(self, x):
        return self.second(unsafe(self.first(x).sin().exp()).cos().tanh())


@pytest.mark.parametrize("overlap", [1, 2])
def test_training_with_split_graphs_matches_eager(compiled, device, pieces, overlap):
    model = Net().to(device)
    twin = copy.deepcopy(model)
    run = compiled(model)
    for _ in range(5):
        x = [torch.randn(3, 4, device=device) for _ in range(overlap)]
        for call, module in ((run, model), (twin, twin)):
            module.zero_grad()
            losses = [call(tensor).square().mean() for tensor in x]
            for loss in losses:
                loss.backward()
        assert_same_grads(model, twin)
    assert pieces == [[True, False, True]] * 2, "forward and backward"


def test_threads_that_call_a_split_graph_get_their_own_results(compiled, device):
    run = compiled(chain)
    agree(run, chain, device)
    from concurrent.futures import ThreadPoolExecutor

    x = [torch.full((3, 4), step / 16, device=device) for step in range(50)]
    with ThreadPoolExecutor(4) as pool:
        torch.testing.assert_close(list(pool.map(run, x)), [chain(tensor) for tensor in x])


@pytest.mark.uncaptured
def test_partition_false_runs_the_whole_graph_uncaptured(compiled, device):
    run = compiled(chain, partition=False)
    with pytest.warns(DynxWarning, match="runs uncaptured, since dynx_tests.unsafe.default cannot be captured"):
        agree(run, chain, device)
    assert cudagraphs.stats().replays == 0


@pytest.mark.uncaptured
@pytest.mark.parametrize("suppress_errors", [False, True])
def test_or_error_raises_instead_of_splitting_the_graph(compiled, device, suppress_errors):
    """As an error of its own, not as one of compilation, which Dynamo wraps or suppresses."""
    run = compiled(chain, or_error=True)
    with torch._dynamo.config.patch(suppress_errors=suppress_errors):
        for _ in range(2):
            with pytest.raises(CaptureError, match=r"unsafe.default cannot be captured"):
                run(torch.ones(3, 4, device=device))


@torch.library.custom_op("dynx_tests::returns_zero", mutates_args=(), tags=(torch.Tag.cudagraph_unsafe,))
def returns_zero(x: torch.Tensor) -> torch.Tensor:
    return torch.zeros((), dtype=torch.int64, device=x.device)


@returns_zero.register_fake
def _(x):
    return x.new_empty((), dtype=torch.int64)


class Repeat(torch.autograd.Function):
    """Has a gradient that is a view of an output of a captured piece."""

    @staticmethod
    def forward(ctx, x):
        return torch.cat([x, x, x])

    @staticmethod
    def backward(ctx, gradient):
        wide = elementwise(gradient)
        number = returns_zero(wide).item()
        torch._check(number >= 0)
        torch._check(number < 3)
        return wide.narrow(0, number, 3)


@pytest.mark.parametrize("outputs", ["clone", "alias", "static"])
def test_later_replays_do_not_overwrite_gradients_of_split_graphs(compiled, device, monkeypatch, outputs):
    monkeypatch.setattr(torch._dynamo.config, "capture_scalar_outputs", True)
    run = compiled(lambda x: Repeat.apply(x), outputs=outputs)
    actual, expected = [], []
    for step in range(5):
        x = torch.ones(3, device=device, requires_grad=True)
        gradient = torch.full((9,), step / 10, device=device)
        run(x).backward(gradient)
        actual.append(x.grad)
        expected.append(elementwise(gradient)[:3])
    assert torch.equal(torch.stack(actual), torch.stack(expected))
