"""Graphed functions and modules train as eager ones do; torch.cuda.make_graphed_callables beside them where there is a GPU."""

from __future__ import annotations

import copy
import gc
import pickle
import weakref

import pytest
import torch
from cudagraphs_runtimes import NO_GPU, RUNTIMES

from dynx import cudagraphs
from dynx.errors import CaptureError, DynxWarning, UsageError


def model_of(device, dropout=0.0):
    torch.manual_seed(0)
    layers = torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.Tanh(), torch.nn.Dropout(dropout), torch.nn.Linear(8, 2)
    return torch.nn.Sequential(*layers).to(device)


def some(device, rows=3):
    return torch.randn(rows, 4, device=device)


def same_gradients(one, other):
    for mine, theirs in zip(one.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, theirs.grad)


@pytest.fixture(params=["autograd", "in_place"])
def gradients(request):
    return request.param


@pytest.fixture
def graph(device, gradients):
    def make(function, *args, warmup=1, allow_unused_input=False, sample_kwargs=None, **config):
        config = cudagraphs.Config(runtime=RUNTIMES[device], **config)
        how = {"warmup": warmup, "allow_unused_input": allow_unused_input, "gradients": gradients}
        return cudagraphs.graphed(function, args, sample_kwargs=sample_kwargs, config=config, **how)

    return make


@pytest.fixture
def pair(device, graph):
    """A graphed model, and its twin."""
    model = model_of(device)
    twin = copy.deepcopy(model)
    graphed = graph(model, some(device))
    twin.load_state_dict(graphed.state_dict())  # statistics of the warm-up
    cudagraphs._stats.forget()
    return graphed, twin


def both(pair, x, *, zero=True):
    for each in pair:
        if zero:
            each.zero_grad()
        each(x).square().mean().backward()
    same_gradients(*pair)


@pytest.mark.parametrize("outputs", ["clone", "alias", "static"])
def test_a_loop_trains(device, graph, outputs):
    model = model_of(device)
    pair = model, copy.deepcopy(model)
    graph(model, some(device), outputs=outputs)
    pair[1].load_state_dict(model.state_dict())
    optimizers = [torch.optim.SGD(each.parameters(), lr=0.1) for each in pair]
    for _ in range(5):
        both(pair, some(device))
        for each in optimizers:
            each.step()
    torch.testing.assert_close(pair[0].state_dict(), pair[1].state_dict())
    assert (cudagraphs.stats().recordings, cudagraphs.stats().replays) == (2, 10)


def test_gradients_add_up(device, pair):
    """With torch.cuda.make_graphed_callables they are those of the last backward pass, as often as there was one."""
    for step in range(6):
        both(pair, some(device), zero=step % 3 == 0)


@pytest.mark.gpu
@NO_GPU
@pytest.mark.parametrize("device", ["cuda"], indirect=True)
def test_torch_overwrites_gradients_that_should_add_up(device):
    model = torch.nn.Linear(1, 1, device=device)
    torch.cuda.make_graphed_callables(model, (torch.ones(1, 1, device=device),))
    for value in (1.0, 2.0):
        model(torch.full((1, 1), value, device=device)).sum().backward()
    assert model.weight.grad.item() == 4.0, "torch has mended it: 1 + 2 is 3"


def test_gradients_add_to_those_of_others(device, pair):
    for each in pair:
        each.zero_grad()
        (each[0].weight.sum() * 2).backward()
    both(pair, some(device), zero=False)
    pair[0][0].weight.grad = pair[1][0].weight.grad = None
    both(pair, some(device), zero=False)


def test_two_forwards_before_their_backwards(device, pair):
    for _ in range(3):
        x = [some(device) for _ in range(3)]
        for each in pair:
            each.zero_grad()
            losses = [each(one).square().mean() for one in x]
            for loss in losses:
                loss.backward()
        same_gradients(*pair)


def test_a_forward_without_a_backward(device, pair):
    for _ in range(3):
        pair[0](some(device)), pair[1](some(device))
    pair[1].load_state_dict(pair[0].state_dict())
    both(pair, some(device))


def test_gradients_of_arguments(device, graph):
    run = graph(torch.mul, *(some(device).requires_grad_() for _ in range(2)))
    for _ in range(3):
        x, y = (some(device).requires_grad_() for _ in range(2))
        run(x, y).sum().backward()
        torch.testing.assert_close((x.grad, y.grad), (y.detach(), x.detach()))


def test_train_and_eval_with_and_without_gradients(device, pair):
    for _ in range(2):
        for each in pair:
            each.train()
        both(pair, some(device))
        for each in pair:
            each.eval()
        both(pair, some(device))
        with torch.no_grad():
            x = some(device)
            torch.testing.assert_close(pair[0](x), pair[1](x))
            assert not pair[0](x).requires_grad


def test_other_layouts(device, pair):
    for rows in (3, 5, 3, 5, 3, 5):
        both(pair, some(device, rows))


def test_keywords_containers_and_results_that_are_no_tensors(device, graph):
    model = model_of(device)

    def function(batch, *, scale):
        out = model(batch["x"])
        return {"loss": (out * scale).square().mean(), "rows": len(batch["x"]), "out": out.detach()}

    twin, run = copy.deepcopy(model), graph(function, {"x": some(device)}, sample_kwargs={"scale": 2.0})
    for scale in (2.0, 3.0, 2.0, 3.0):
        x = some(device)
        twin.load_state_dict(model.state_dict())
        model.zero_grad(), twin.zero_grad()
        found = run({"x": x}, scale=scale)
        found["loss"].backward()
        expected = twin(x)
        (expected * scale).square().mean().backward()
        torch.testing.assert_close(found["out"], expected.detach())
        assert found["rows"] == 3
        assert not found["out"].requires_grad
        same_gradients(model, twin)


def test_hooks_of_the_module_are_called(device, pair):
    seen = []
    pair[0].register_forward_hook(lambda module, args, output: seen.append(output.shape))
    both(pair, some(device))
    both(pair, some(device))
    assert seen == [(3, 2)] * 2


def test_random_numbers_are_those_of_eager(device, graph):
    model = model_of(device, dropout=0.5)
    pair = graph(model, some(device)), copy.deepcopy(model)
    for step in range(4):
        x = some(device)
        for each in pair:
            torch.manual_seed(step)
            each.zero_grad()
            each(x).sum().backward()
        same_gradients(*pair)


def test_parameters_that_move_are_noticed(device, pair):
    both(pair, some(device))
    for each in pair[0].parameters():
        each.data = each.data.clone()
    both(pair, some(device))
    both(pair, some(device))


def test_backward_twice_says_what_torch_says(device, pair):
    loss = pair[0](some(device)).sum()
    loss.backward()
    with pytest.raises(RuntimeError, match="second time"):
        loss.backward()


def test_double_backward_is_refused(device, graph):
    run = graph(torch.sin, some(device).requires_grad_())
    x = some(device).requires_grad_()
    (first,) = torch.autograd.grad(run(x).sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match=r"once_differentiable|does not require grad"):
        first.sum().backward()


def test_several_at_once(device):
    models = model_of(device), torch.nn.Linear(2, 3, device=device)
    twins = copy.deepcopy(models)
    config = cudagraphs.Config(runtime=RUNTIMES[device])
    hidden = torch.randn(3, 2, device=device, requires_grad=True)
    graphed = cudagraphs.graphed(models, ((some(device),), (hidden,)), warmup=1, config=config)
    twins[0].load_state_dict(models[0].state_dict())
    for _ in range(3):
        x = some(device)
        for first, second in (graphed, twins):
            first.zero_grad(), second.zero_grad()
            second(first(x)).square().mean().backward()
        for one, other in zip(graphed, twins, strict=True):
            same_gradients(one, other)


@pytest.mark.uncaptured
def test_a_module_that_nobody_holds_is_gone(device, graph):
    gone = weakref.ref(graph(model_of(device), some(device)))
    gc.collect()
    assert gone() is None


def test_copies_are_not_graphed(device, pair):
    """With torch.cuda.make_graphed_callables a copy replays the graph of the original, with its parameters."""
    model = pair[0]
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        both((other, copy.deepcopy(pair[1])), some(device))
        assert other.forward.__self__ is other
    both(pair, some(device))


def test_unused_parameters(device, graph):
    model = model_of(device)
    model.unused = torch.nn.Parameter(torch.ones(2, device=device))
    with pytest.raises(UsageError, match=r"unused gets no gradient(.|\n)*allow_unused_input"):
        graph(model, some(device))
    assert "forward" not in vars(model), "it is as it was"
    graph(model, some(device), allow_unused_input=True)(some(device)).sum().backward()
    assert model.unused.grad is None


def refused(graph, match, model, device):
    with pytest.raises(UsageError, match=match):
        graph(model, some(device))


@pytest.mark.uncaptured
def test_what_would_go_wrong_in_silence_is_refused_by_name(device, graph):
    model = model_of(device)
    model.register_buffer("mask", torch.ones(2, device=device, requires_grad=True))
    refused(graph, "buffer mask needs gradients", model, device)
    for register in ("register_forward_hook", "register_forward_pre_hook", "register_full_backward_hook"):
        model = model_of(device)
        getattr(model[2], register)(lambda *_: None)
        refused(graph, "submodule 2 has a hook", model, device)
    run = graph(lambda x: x.add_(1) * 2, some(device))
    run(some(device).requires_grad_() * 1)
    with pytest.raises(UsageError, match="x needs gradients and is changed in place"):
        run(some(device).requires_grad_() * 1)
    with pytest.raises(UsageError, match="warmup=0"):
        graph(model_of(device), some(device), warmup=0)
    with pytest.raises(UsageError, match="there are 2 callables"):
        cudagraphs.graphed((torch.sin, torch.cos), ((some(device),),))
    with pytest.raises(UsageError, match="gradients='static' is no choice"):
        cudagraphs.graphed(torch.sin, (some(device),), gradients="static")


@pytest.mark.uncaptured
def test_what_cannot_be_captured_is_run_as_it_is(device, graph):
    model = model_of(device)

    def function(x):
        return model(x) * x.sum().item()

    with pytest.warns(DynxWarning, match="graphed function runs uncaptured"):
        run = graph(function, some(device))
    run(some(device)).sum().backward()
    assert model[0].weight.grad is not None
    with pytest.raises(CaptureError):
        graph(function, some(device), or_error=True)


def test_parameters_that_are_used_by_another_way(device, graph):
    """By a variable of the function, or an element of a list, besides as attributes."""
    model, twin = (torch.nn.Linear(4, 4).to(device) for _ in range(2))
    twin.load_state_dict(model.state_dict())
    weight = model.weight
    run = graph(lambda x: model(x) + x @ weight, some(device))
    for _ in range(3):
        x = some(device)
        model.zero_grad(), twin.zero_grad()
        run(x).square().sum().backward()
        (twin(x) + x @ twin.weight).square().sum().backward()
        same_gradients(model, twin)


class Keeps(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = x.exp()
        ctx.y = y.detach()
        return y

    @staticmethod
    def backward(ctx, gradient):
        return gradient * ctx.y


def test_what_a_function_of_autograd_keeps_is_not_overwritten(device, graph):
    run = graph(lambda x: Keeps.apply(x), some(device).requires_grad_())
    for _ in range(3):
        x = some(device).requires_grad_()
        run(x).sum().backward()
        torch.testing.assert_close(x.grad, x.exp().detach())


def test_names_of_modules_that_are_bound_to_others(device, graph):
    layer, other = (torch.nn.Linear(4, 4).to(device) for _ in range(2))
    run = graph(lambda x: layer(x), some(device))
    for _ in range(3):
        for mine in (layer, other):
            layer, x = mine, some(device)
            expected = torch.autograd.grad(mine(x).square().sum(), tuple(mine.parameters()))
            mine.zero_grad()
            run(x).square().sum().backward()
            torch.testing.assert_close(tuple(each.grad for each in mine.parameters()), expected)


def test_parameters_with_two_names(device, graph):
    layers = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)).to(device)
    last = layers[1]
    run = graph(lambda x: last(layers[0](x)), some(device))
    for _ in range(3):
        x = some(device)
        expected = torch.autograd.grad(layers(x).square().sum(), tuple(layers.parameters()))
        layers.zero_grad()
        run(x).square().sum().backward()
        torch.testing.assert_close(tuple(each.grad for each in layers.parameters()), expected)


@pytest.mark.uncaptured
def test_modules_that_come_later_are_refused_alike(device, graph):
    layer = torch.nn.Linear(4, 4).to(device)
    run = graph(lambda x: layer(x), some(device))
    layer = torch.nn.Sequential(torch.nn.Linear(4, 4)).to(device)
    layer[0].register_forward_hook(lambda module, args, result: result * 2)
    run(some(device))
    with pytest.raises(UsageError, match="hook"):
        run(some(device))
