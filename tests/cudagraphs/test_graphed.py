"""Graphed functions and modules train as eager ones do; compared with torch.cuda.make_graphed_callables on a GPU."""

from __future__ import annotations

import copy
import gc
import pickle
import weakref

import pytest
import torch
from support.agreement import assert_same_grads
from support.configs import config_for
from support.devices import on_cuda
from support.models import batch_norm_mlp, linear
from torch.utils.checkpoint import checkpoint

from dynx import cudagraphs
from dynx.errors import CaptureError, DynxWarning, UsageError


def random_batch(device, rows=3):
    return torch.randn(rows, 4, device=device)


@pytest.fixture(params=["autograd", "in_place"])
def gradients(request):
    return request.param


@pytest.fixture
def graph(device, gradients):
    def make(function, *args, warmup=1, allow_unused_input=False, sample_kwargs=None, **options):
        config = config_for(device, **options)
        return cudagraphs.graphed(
            function,
            args,
            sample_kwargs=sample_kwargs,
            warmup=warmup,
            allow_unused_input=allow_unused_input,
            gradients=gradients,
            config=config,
        )

    return make


@pytest.fixture
def pair(device, graph):
    """A graphed model and an eager copy."""
    model = batch_norm_mlp(device)
    twin = copy.deepcopy(model)
    graphed = graph(model, random_batch(device))
    twin.load_state_dict(graphed.state_dict())  # running statistics include the warm-up
    cudagraphs._stats.reset_stats()
    return graphed, twin


def assert_agree(pair, x, *, zero=True):
    for module in pair:
        if zero:
            module.zero_grad()
        module(x).square().mean().backward()
    assert_same_grads(*pair)


@pytest.mark.parametrize("outputs", ["clone", "alias", "static"])
def test_graphed_training_loop_matches_eager(device, graph, outputs):
    model = batch_norm_mlp(device)
    pair = model, copy.deepcopy(model)
    graph(model, random_batch(device), outputs=outputs)
    pair[1].load_state_dict(model.state_dict())
    optimizers = [torch.optim.SGD(module.parameters(), lr=0.1) for module in pair]
    for _ in range(5):
        assert_agree(pair, random_batch(device))
        for optimizer in optimizers:
            optimizer.step()
    torch.testing.assert_close(pair[0].state_dict(), pair[1].state_dict())
    assert (cudagraphs.stats().recordings, cudagraphs.stats().replays) == (2, 10)


def test_graphed_module_accumulates_gradients(device, pair):
    """With torch.cuda.make_graphed_callables, a backward pass overwrites the gradients of earlier backward passes."""
    for step in range(6):
        assert_agree(pair, random_batch(device), zero=step % 3 == 0)


@on_cuda
def test_make_graphed_callables_overwrites_accumulated_gradients(device):
    model = torch.nn.Linear(1, 1, device=device)
    torch.cuda.make_graphed_callables(model, (torch.ones(1, 1, device=device),))
    for value in (1.0, 2.0):
        model(torch.full((1, 1), value, device=device)).sum().backward()
    assert model.weight.grad.item() == 4.0, "torch accumulates now: the gradient is 1 + 2 = 3"


def test_graphed_module_accumulates_onto_eager_gradients(device, pair):
    for module in pair:
        module.zero_grad()
        (module[0].weight.sum() * 2).backward()
    assert_agree(pair, random_batch(device), zero=False)
    pair[0][0].weight.grad = pair[1][0].weight.grad = None
    assert_agree(pair, random_batch(device), zero=False)


def test_several_graphed_forwards_before_backward_match_eager(device, pair):
    for _ in range(3):
        x = [random_batch(device) for _ in range(3)]
        for module in pair:
            module.zero_grad()
            losses = [module(tensor).square().mean() for tensor in x]
            for loss in losses:
                loss.backward()
        assert_same_grads(*pair)


def test_graphed_gradients_match_eager_after_forwards_without_backward(device, pair):
    for _ in range(3):
        pair[0](random_batch(device)), pair[1](random_batch(device))
    pair[1].load_state_dict(pair[0].state_dict())
    assert_agree(pair, random_batch(device))


def test_graphed_function_sets_gradients_of_its_inputs(device, graph):
    run = graph(torch.mul, *(random_batch(device).requires_grad_() for _ in range(2)))
    for _ in range(3):
        x, y = (random_batch(device).requires_grad_() for _ in range(2))
        run(x, y).sum().backward()
        torch.testing.assert_close((x.grad, y.grad), (y.detach(), x.detach()))


def test_graphed_module_matches_eager_in_train_eval_and_no_grad_mode(device, pair):
    for _ in range(2):
        for module in pair:
            module.train()
        assert_agree(pair, random_batch(device))
        for module in pair:
            module.eval()
        assert_agree(pair, random_batch(device))
        with torch.no_grad():
            x = random_batch(device)
            torch.testing.assert_close(pair[0](x), pair[1](x))
            assert not pair[0](x).requires_grad


def test_graphed_module_matches_eager_for_alternating_batch_sizes(device, pair):
    for rows in (3, 5, 3, 5, 3, 5):
        assert_agree(pair, random_batch(device, rows))


def test_graphed_function_accepts_keyword_arguments_and_returns_a_dict(device, graph):
    model = batch_norm_mlp(device)

    def function(batch, *, scale):
        out = model(batch["x"])
        return {"loss": (out * scale).square().mean(), "rows": len(batch["x"]), "out": out.detach()}

    twin, run = copy.deepcopy(model), graph(function, {"x": random_batch(device)}, sample_kwargs={"scale": 2.0})
    for scale in (2.0, 3.0, 2.0, 3.0):
        x = random_batch(device)
        twin.load_state_dict(model.state_dict())
        model.zero_grad(), twin.zero_grad()
        actual = run({"x": x}, scale=scale)
        actual["loss"].backward()
        expected = twin(x)
        (expected * scale).square().mean().backward()
        torch.testing.assert_close(actual["out"], expected.detach())
        assert actual["rows"] == 3
        assert not actual["out"].requires_grad
        assert_same_grads(model, twin)


def test_forward_hooks_of_the_graphed_module_are_called(device, pair):
    shapes = []
    pair[0].register_forward_hook(lambda module, args, output: shapes.append(output.shape))
    assert_agree(pair, random_batch(device))
    assert_agree(pair, random_batch(device))
    assert shapes == [(3, 2)] * 2


def test_graphed_dropout_matches_eager(device, graph):
    model = batch_norm_mlp(device, dropout=0.5)
    pair = graph(model, random_batch(device)), copy.deepcopy(model)
    for step in range(4):
        x = random_batch(device)
        for module in pair:
            torch.manual_seed(step)
            module.zero_grad()
            module(x).sum().backward()
        assert_same_grads(*pair)


def test_graphed_gradients_match_eager_after_parameters_get_new_addresses(device, pair):
    assert_agree(pair, random_batch(device))
    for param in pair[0].parameters():
        param.data = param.data.clone()
    assert_agree(pair, random_batch(device))
    assert_agree(pair, random_batch(device))


def test_second_backward_through_a_graphed_output_raises_as_in_torch(device, pair):
    loss = pair[0](random_batch(device)).sum()
    loss.backward()
    with pytest.raises(RuntimeError, match="second time"):
        loss.backward()


@pytest.mark.uncaptured
def test_reentrant_checkpoints_are_refused(device):
    model, x = linear(device), torch.ones(2, 3, device=device, requires_grad=True)
    with pytest.raises(UsageError, match="use_reentrant=True works only in backward"):
        cudagraphs.graphed(lambda x: checkpoint(model, x, use_reentrant=True), (x,), config=config_for(device))


def test_double_backward_through_a_graphed_function_raises(device, graph):
    run = graph(torch.sin, random_batch(device).requires_grad_())
    x = random_batch(device).requires_grad_()
    with pytest.raises(UsageError, match="create_graph=True"):
        torch.autograd.grad(run(x).sum(), x, create_graph=True)


@pytest.mark.parametrize("gradients", ["autograd", "in_place"])
def test_gradient_penalty_raises_instead_of_losing_the_term(device, gradients):
    model = torch.nn.Linear(4, 4, device=device)
    config = config_for(device)
    cudagraphs.graphed(model, (random_batch(device).requires_grad_(),), gradients=gradients, config=config)
    model(random_batch(device).requires_grad_()).sum().backward()
    x = random_batch(device).requires_grad_()
    loss = model(x).square().sum()
    with pytest.raises(UsageError, match="gradient penalty"):
        torch.autograd.grad(loss, x, create_graph=True)


def test_graphed_accepts_several_callables(device):
    models = batch_norm_mlp(device), torch.nn.Linear(2, 3, device=device)
    twins = copy.deepcopy(models)
    config = config_for(device)
    hidden = torch.randn(3, 2, device=device, requires_grad=True)
    graphed = cudagraphs.graphed(models, ((random_batch(device),), (hidden,)), warmup=1, config=config)
    twins[0].load_state_dict(models[0].state_dict())
    for _ in range(3):
        x = random_batch(device)
        for first, second in (graphed, twins):
            first.zero_grad(), second.zero_grad()
            second(first(x)).square().mean().backward()
        for model, twin in zip(graphed, twins, strict=True):
            assert_same_grads(model, twin)


@pytest.mark.uncaptured
def test_graphed_module_is_garbage_collected(device, graph):
    gone = weakref.ref(graph(batch_norm_mlp(device), random_batch(device)))
    gc.collect()
    assert gone() is None


def test_copies_of_a_graphed_module_run_eagerly_with_their_own_parameters(device, pair):
    """A copy of a module graphed by torch.cuda.make_graphed_callables replays the graph of the original's parameters."""
    model = pair[0]
    for model_copy in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert_agree((model_copy, copy.deepcopy(pair[1])), random_batch(device))
        assert model_copy.forward.__self__ is model_copy
    assert_agree(pair, random_batch(device))


def test_graphed_raises_for_unused_parameters_unless_allow_unused_input(device, graph):
    model = batch_norm_mlp(device)
    model.unused = torch.nn.Parameter(torch.ones(2, device=device))
    with pytest.raises(UsageError, match=r"computes no gradient for unused(.|\n)*allow_unused_input"):
        graph(model, random_batch(device))
    assert "forward" not in vars(model), "the module was changed although graphed raised"
    graph(model, random_batch(device), allow_unused_input=True)(random_batch(device)).sum().backward()
    assert model.unused.grad is None


def assert_raises(graph, match, model, device):
    with pytest.raises(UsageError, match=match):
        graph(model, random_batch(device))


@pytest.mark.uncaptured
def test_graphed_raises_for_unsupported_modules_and_arguments(device, graph):
    model = batch_norm_mlp(device)
    model.register_buffer("mask", torch.ones(2, device=device, requires_grad=True))
    assert_raises(graph, "buffer mask requires grad", model, device)
    for register in ("register_forward_hook", "register_forward_pre_hook", "register_full_backward_hook"):
        model = batch_norm_mlp(device)
        getattr(model[2], register)(lambda *_: None)
        assert_raises(graph, "submodule 2 has a hook", model, device)
    run = graph(lambda x: x.add_(1) * 2, random_batch(device))
    run(random_batch(device).requires_grad_() * 1)
    with pytest.raises(UsageError, match="the function mutates its argument x, which requires grad"):
        run(random_batch(device).requires_grad_() * 1)
    x = random_batch(device).requires_grad_() * 1
    run = graph(lambda x: x.clone().add_(1) * 2, random_batch(device))  # as the error advises
    torch.testing.assert_close(run(x), (x + 1) * 2)
    with pytest.raises(UsageError, match="warmup=0"):
        graph(batch_norm_mlp(device), random_batch(device), warmup=0)
    with pytest.raises(UsageError, match="2 callables, but sample arguments for 1"):
        cudagraphs.graphed((torch.sin, torch.cos), ((random_batch(device),),))
    with pytest.raises(UsageError, match="gradients='static' is not a valid choice"):
        cudagraphs.graphed(torch.sin, (random_batch(device),), gradients="static")


@pytest.mark.uncaptured
def test_graphed_function_runs_uncaptured_after_a_failed_capture(device, graph):
    model = batch_norm_mlp(device)

    def function(x):
        return model(x) * x.sum().item()

    with pytest.warns(DynxWarning, match="graphed function runs uncaptured"):
        run = graph(function, random_batch(device))
    run(random_batch(device)).sum().backward()
    assert model[0].weight.grad is not None
    with pytest.raises(CaptureError):
        graph(function, random_batch(device), or_error=True)


def test_parameter_read_via_module_and_closure_variable_gets_both_gradients(device, graph):
    """The weight is read through the module and through a closure variable; both have to get their gradients."""
    model, twin = (torch.nn.Linear(4, 4).to(device) for _ in range(2))
    twin.load_state_dict(model.state_dict())
    weight = model.weight
    run = graph(lambda x: model(x) + x @ weight, random_batch(device))
    for _ in range(3):
        x = random_batch(device)
        model.zero_grad(), twin.zero_grad()
        run(x).square().sum().backward()
        (twin(x) + x @ twin.weight).square().sum().backward()
        assert_same_grads(model, twin)


class SavesOutputOnCtx(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = x.exp()
        ctx.y = y.detach()
        return y

    @staticmethod
    def backward(ctx, gradient):
        return gradient * ctx.y


def test_tensors_stored_on_autograd_function_ctx_are_not_overwritten(device, graph):
    run = graph(lambda x: SavesOutputOnCtx.apply(x), random_batch(device).requires_grad_())
    for _ in range(3):
        x = random_batch(device).requires_grad_()
        run(x).sum().backward()
        torch.testing.assert_close(x.grad, x.exp().detach())


def test_graphed_gradients_match_eager_after_rebinding_a_closure_variable(device, graph):
    layer, other = (torch.nn.Linear(4, 4).to(device) for _ in range(2))
    run = graph(lambda x: layer(x), random_batch(device))
    for _ in range(3):
        for current in (layer, other):
            layer, x = current, random_batch(device)
            expected = torch.autograd.grad(current(x).square().sum(), tuple(current.parameters()))
            current.zero_grad()
            run(x).square().sum().backward()
            torch.testing.assert_close(tuple(param.grad for param in current.parameters()), expected)


def test_module_reached_through_two_closure_variables_gets_its_gradients(device, graph):
    layers = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)).to(device)
    last = layers[1]
    run = graph(lambda x: last(layers[0](x)), random_batch(device))
    for _ in range(3):
        x = random_batch(device)
        expected = torch.autograd.grad(layers(x).square().sum(), tuple(layers.parameters()))
        layers.zero_grad()
        run(x).square().sum().backward()
        torch.testing.assert_close(tuple(param.grad for param in layers.parameters()), expected)


@pytest.mark.uncaptured
def test_rebinding_to_a_module_with_a_hook_raises(device, graph):
    layer = torch.nn.Linear(4, 4).to(device)
    run = graph(lambda x: layer(x), random_batch(device))
    layer = torch.nn.Sequential(torch.nn.Linear(4, 4)).to(device)
    layer[0].register_forward_hook(lambda module, args, result: result * 2)
    run(random_batch(device))
    with pytest.raises(UsageError, match="hook"):
        run(random_batch(device))


def assert_compiled_model_is_captured(device, backend, dropout):
    """What torch.compile has compiled refuses `retain_graph=True`, since it reuses memory of saved tensors."""
    torch.manual_seed(0)
    nn = torch.nn
    layers = nn.Linear(3, 16), nn.GELU(), nn.LayerNorm(16), nn.Dropout(dropout), nn.Linear(16, 4)
    model = nn.Sequential(*layers).to(device)
    x = torch.randn(2, 3, device=device, requires_grad=True)
    run = cudagraphs.graphed(torch.compile(model, backend=backend), (x,), config=config_for(device))
    for step in range(5):
        grads = []
        for call in (model, run):
            torch.manual_seed(step)
            x = torch.full((2, 3), float(step), device=device, requires_grad=True)
            model.zero_grad()
            call(x).square().sum().backward()
            grads.append([x.grad, *(param.grad for param in model.parameters())])
        if backend != "inductor" or not dropout:  # inductor draws other numbers than eager code
            torch.testing.assert_close(*grads)
    assert cudagraphs.stats().recordings == 2
    assert not cudagraphs.stats().skips


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_a_compiled_model_is_captured(device, backend, dropout):
    assert_compiled_model_is_captured(device, backend, dropout)


@on_cuda
@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_a_model_that_inductor_compiled_is_captured(device, dropout):
    assert_compiled_model_is_captured(device, "inductor", dropout)
