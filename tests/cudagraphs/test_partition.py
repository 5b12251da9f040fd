"""A graph with operators that cannot be captured is divided, and gives what it gave."""

from __future__ import annotations

import copy

import pytest
import torch
from cudagraphs_runtimes import NO_GPU

from dynx import cudagraphs
from dynx.cudagraphs._compiled import backend
from dynx.cudagraphs._compiled.split_runner import Divided
from dynx.cudagraphs._graph.split import pieces_of
from dynx.errors import DynxWarning
from dynx.records.cudagraphs import GraphInput, GraphPlan


@torch.library.custom_op("dynx_tests::unsafe", mutates_args=(), tags=(torch.Tag.cudagraph_unsafe,))
def unsafe(x: torch.Tensor) -> torch.Tensor:
    return x + x.flatten()[0].item()


@unsafe.register_fake
def _(x):
    return torch.empty_like(x)


@torch.library.custom_op("dynx_tests::unsafe_change", mutates_args=("x",), tags=(torch.Tag.cudagraph_unsafe,))
def unsafe_change(x: torch.Tensor) -> None:
    x.add_(x.flatten()[0].item())


unsafe.register_autograd(lambda ctx, gradient: unsafe(gradient))


@pytest.fixture
def pieces(monkeypatch):
    """The pieces of the graphs that are divided: which are captured."""
    found = []
    described_pieces = backend.described_pieces

    def describe_and_keep(*args):
        described = described_pieces(*args)
        found.append([not each.why_uncaptured for each in described] or None)
        return described

    monkeypatch.setattr("dynx.cudagraphs._compiled.backend.described_pieces", describe_and_keep)
    return found


def heavy(x):
    return x.sin().cos().exp().tanh()


def agree(run, eager, device, calls=5, **layout):
    for step in range(calls):
        x = torch.randn(3, 4, device=device, **layout) + step / 8
        y = x.clone()
        torch.manual_seed(step)
        found = run(x)
        torch.manual_seed(step)
        torch.testing.assert_close(found, eager(y))
        torch.testing.assert_close(x, y)


def chain(x):
    return heavy(unsafe(heavy(x)))


def two_at_once(x):
    """Two unsafe operators that do not depend on one another run in one piece."""
    a, b = heavy(x), heavy(x + 1)
    return heavy(unsafe(a) + unsafe(b))


def one_after_another(x):
    return heavy(unsafe(heavy(unsafe(heavy(x)))))


def results_of_all(x):
    a = heavy(x)
    b = unsafe(a)
    c = heavy(b)
    return a, b, c, a + c, 7, x


def unsafe_first_and_last(x):
    return unsafe(heavy(unsafe(x)))


def small(x):
    """What is not worth a replay is not captured."""
    return unsafe(unsafe(heavy(x)) + 1)


FUNCTIONS = {
    chain: [True, False, True],
    two_at_once: [True, False, True],
    one_after_another: [True, False, True, False, True],
    results_of_all: [True, False, True],
    unsafe_first_and_last: [False, True, False],
    small: [True, False, False, False],
}


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda each: each.__name__)
def test_the_fewest_pieces_are_captured(compiled, device, pieces, function):
    agree(compiled(function), function, device)
    assert pieces == [FUNCTIONS[function]]
    assert cudagraphs.stats().recordings == sum(FUNCTIONS[function])
    assert cudagraphs.stats().replays == 4 * sum(FUNCTIONS[function])


@pytest.mark.parametrize("outputs", ["alias", "static"])
def test_results_that_are_not_copied(compiled, device, outputs):
    agree(compiled(results_of_all, outputs=outputs), results_of_all, device)


def test_results_are_yours_to_keep(compiled, device):
    run = compiled(results_of_all)
    x = [torch.randn(3, 4, device=device) for _ in range(5)]
    kept = [run(each) for each in x]
    torch.testing.assert_close(kept, [results_of_all(each) for each in x])


def test_a_view_that_is_made_of_a_recording_is_yours_to_keep(compiled, device):
    """The size of the view is known only when the graph runs: it is made where nothing is captured."""

    def function(x):
        y = heavy(x)
        return y[: y.nonzero().shape[0] // 12], heavy(y * 2)

    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True), torch.no_grad():
        run = compiled(function)
        given = [torch.full((3, 4), step + 1.0, device=device) for step in range(4)]
        kept = [run(x)[0] for x in given]
        assert cudagraphs.stats().replays > 0
    torch.testing.assert_close(kept, [function(x)[0] for x in given])


@torch.library.custom_op("dynx_tests::calls", mutates_args=(), tags=(torch.Tag.cudagraph_unsafe,))
def calls(x: torch.Tensor) -> torch.Tensor:
    if len(_called) > 3:
        return x.clone()
    _called.append(x)
    try:
        return _called[0](x * 0.5 + len(_called)).clone()
    finally:
        _called.pop()


_called = []


@calls.register_fake
def _(x):
    return torch.empty_like(x)


@torch.no_grad()
def test_an_operator_that_calls_the_graph_it_is_in(compiled, device):
    def function(x):
        y = heavy(x)
        return heavy(y + calls(y))

    run = compiled(function)
    for step in range(6):
        x = torch.full((3, 4), step / 4, device=device)
        found = []
        for each in (run, function):
            _called[:] = [each]
            found.append(each(x))
        torch.testing.assert_close(*found)


def test_random_numbers_keep_their_order(compiled, device, pieces):
    def function(x):
        a = unsafe(torch.nn.functional.dropout(x))
        return heavy(torch.nn.functional.dropout(x + 1)), a, heavy(a)

    agree(compiled(function), function, device)


def test_random_numbers_keep_the_order_in_which_they_were_written(compiled, device):
    """Without that the second, which waits for nothing, would be drawn first."""

    def function(x):
        first = torch.nn.functional.dropout(unsafe(heavy(x)))
        second = torch.nn.functional.dropout(x)
        return heavy(first), heavy(second)

    agree(compiled(function), function, device)


def test_who_reads_is_before_who_writes(compiled, device):
    def function(x):
        before = unsafe(x)
        x.mul_(heavy(x))
        return before

    agree(compiled(function), function, device)


def test_a_result_that_is_saved_too_stays_where_it_is(compiled, device):
    weight = torch.ones(4, device=device, requires_grad=True)
    run = compiled(lambda x: heavy(unsafe(heavy(x * weight))))
    for _ in range(5):
        x = torch.randn(3, 4, device=device)
        weight.grad = None
        run(x).sum().backward()
        found, weight.grad = weight.grad, None
        heavy(unsafe(heavy(x * weight))).sum().backward()
        torch.testing.assert_close(found, weight.grad)
    assert cudagraphs.stats().recordings == 4, "two pieces forward, two backward: what was saved is where it was"


def test_a_result_for_the_user_is_a_copy_and_for_the_backward_pass_is_not():
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    result = graph.call_function(torch.sin, (x,))
    graph.output((result, result))
    gm = torch.fx.GraphModule({}, graph)
    (piece,) = pieces_of(gm, [[result]], 1)
    assert (piece.results, piece.user_outputs) == ((result, result), 1)
    plan = GraphPlan("forward", (GraphInput("x", "dynamic", "an argument"),), 1)
    assert Divided(gm, [(piece, lambda args: ["copy", "where it lies"])], plan, clones=True)([1]) == ["copy", "where it lies"]


def test_changes_in_place_keep_their_order(compiled, device, pieces):
    def function(x):
        before = heavy(x)
        unsafe_change(x)
        after = heavy(x)
        x.mul_(2)
        return before, after, heavy(x)

    agree(compiled(function), function, device)


def test_sizes_that_change(compiled, device):
    run = compiled(chain, dynamic=True)
    for rows in (3, 4, 3, 4, 5, 3):
        x = torch.randn(rows, 4, device=device)
        torch.testing.assert_close(run(x), chain(x))


def test_sizes_that_depend_on_values(compiled, device, pieces):
    def function(x):
        a = heavy(x)
        return heavy(a[a > 0.6]).sum(), heavy(a + 1)

    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        agree(compiled(function), function, device)
    assert pieces == [[True, False, False]], "what is left behind the sizes is not worth a replay"


def test_values_that_are_read(compiled, device):
    def function(x):
        n = heavy(x).sum().item()
        return heavy(x * n)

    with torch._dynamo.config.patch(capture_scalar_outputs=True):
        agree(compiled(function), function, device)


@pytest.mark.gpu
@NO_GPU
@pytest.mark.parametrize("device", ["cuda"], indirect=True)
def test_operators_on_the_cpu(compiled, device, pieces):
    def function(x):
        return heavy(heavy(heavy(x).cpu()).cuda())

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
def test_training(compiled, device, pieces, overlap):
    model = Net().to(device)
    other = copy.deepcopy(model)
    run = compiled(model)
    for _ in range(5):
        x = [torch.randn(3, 4, device=device) for _ in range(overlap)]
        for call, each in ((run, model), (other, other)):
            each.zero_grad()
            losses = [call(one).square().mean() for one in x]
            for loss in losses:
                loss.backward()
        for mine, theirs in zip(model.parameters(), other.parameters(), strict=True):
            torch.testing.assert_close(mine.grad, theirs.grad)
    assert pieces == [[True, False, True]] * 2, "forward and backward"


def test_threads(compiled, device):
    run = compiled(chain)
    agree(run, chain, device)
    from concurrent.futures import ThreadPoolExecutor

    x = [torch.full((3, 4), step / 16, device=device) for step in range(50)]
    with ThreadPoolExecutor(4) as pool:
        torch.testing.assert_close(list(pool.map(run, x)), [chain(each) for each in x])


@pytest.mark.uncaptured
def test_it_can_be_left_out(compiled, device):
    run = compiled(chain, partition=False)
    with pytest.warns(DynxWarning, match="runs uncaptured, since dynx_tests.unsafe.default cannot be captured"):
        agree(run, chain, device)
    assert cudagraphs.stats().replays == 0


@pytest.mark.uncaptured
def test_or_error_wants_all_of_it(compiled, device):
    run = compiled(chain, or_error=True)
    with pytest.raises(torch._dynamo.exc.BackendCompilerFailed, match=r"CaptureError: .*unsafe.default cannot be captured"):
        run(torch.ones(3, 4, device=device))


@torch.library.custom_op("dynx_tests::nothing", mutates_args=(), tags=(torch.Tag.cudagraph_unsafe,))
def nothing(x: torch.Tensor) -> torch.Tensor:
    return torch.zeros((), dtype=torch.int64, device=x.device)


@nothing.register_fake
def _(x):
    return x.new_empty((), dtype=torch.int64)


class Thrice(torch.autograd.Function):
    """Has a gradient that is a view of what a captured piece made."""

    @staticmethod
    def forward(ctx, x):
        return torch.cat([x, x, x])

    @staticmethod
    def backward(ctx, gradient):
        made = heavy(gradient)
        number = nothing(made).item()
        torch._check(number >= 0)
        torch._check(number < 3)
        return made.narrow(0, number, 3)


@pytest.mark.parametrize("outputs", ["clone", "alias", "static"])
def test_gradients_of_divided_graphs_are_copies(compiled, device, monkeypatch, outputs):
    monkeypatch.setattr(torch._dynamo.config, "capture_scalar_outputs", True)
    run = compiled(lambda x: Thrice.apply(x), outputs=outputs)
    found, expected = [], []
    for step in range(5):
        x = torch.ones(3, device=device, requires_grad=True)
        gradient = torch.full((9,), step / 10, device=device)
        run(x).backward(gradient)
        found.append(x.grad)
        expected.append(heavy(gradient)[:3])
    assert torch.equal(torch.stack(found), torch.stack(expected))
