"""A recorded training step trains as the eager step does."""

from __future__ import annotations

import copy
import gc
from types import SimpleNamespace

import pytest
import torch
from support.configs import config_for
from support.devices import on_cuda
from support.models import batch_norm_mlp
from support.twin_training import TwinTraining, sgd

from dynx import cudagraphs
from dynx.errors import CaptureError, DynxWarning, UsageError


def square_mean(model, x):
    return model(x).square().mean()


def twin_training(device, make_optimizer=None, *, loss=square_mean, **options):
    return TwinTraining(device, batch_norm_mlp(device), make_optimizer, loss=loss, **options)


def momentum(model):
    return sgd(model, momentum=0.9, dampening=0.5)


def adam(model):
    params = [*model.parameters()]
    return torch.optim.AdamW(params, lr=0.01, fused=True, capturable=params[0].is_cuda)


OPTIMIZERS = {"none": None, "SGD": momentum, "AdamW": adam}


@pytest.mark.parametrize("optimizer", OPTIMIZERS.values(), ids=OPTIMIZERS)
@pytest.mark.parametrize("outputs", ["clone", "alias", "static"])
def test_train_step_loop_matches_eager(device, optimizer, outputs):
    twin_training(device, optimizer, outputs=outputs).assert_steps_agree(6)
    stats = cudagraphs.stats()
    assert (stats.recordings, stats.replays, stats.uncaptured) == (1, 5, 1)


def test_train_step_captures_one_recording_per_batch_size(device):
    twins = twin_training(device, adam)
    for rows in (3, 2, 3, 2, 3, 2):
        twins.assert_steps_agree(2, shape=(rows, 4))
    assert cudagraphs.stats().recordings == 2


@pytest.mark.parametrize("accumulate", [2, 3, 4])
@pytest.mark.parametrize("optimizer", [momentum, adam])
def test_train_step_with_gradient_accumulation_matches_eager(device, optimizer, accumulate):
    twin_training(device, optimizer, accumulate=accumulate).assert_steps_agree(5 * accumulate)
    assert cudagraphs.stats().recordings == min(accumulate, 3)


@pytest.mark.parametrize("accumulate", [1, 2])
def test_train_step_with_gradient_clipping_matches_eager(device, accumulate):
    twin_training(device, momentum, clip=0.1, accumulate=accumulate).assert_steps_agree(6)


@pytest.mark.parametrize("clip", [None, 0.1])
def test_grad_scaler_in_a_replay_skips_the_optimizer_step_for_inf_gradients(device, clip):
    twins = twin_training(device, adam, scaler=True, clip=clip)
    twins.assert_steps_agree(3)
    with_inf = torch.full((3, 4), float("inf"), device=device)
    before = [param.clone() for param in twins.captured.parameters()]
    twins.step(with_inf), twins.eager_step(with_inf)
    torch.testing.assert_close(list(twins.captured.parameters()), before)
    assert [scaler.get_scale() for scaler in twins.scalers] == [4.0, 4.0]
    assert cudagraphs.stats().replays == 3


def test_changing_a_tensor_learning_rate_needs_no_recapture(device):
    rates = []

    def make_optimizer(model):
        rates.append(torch.tensor(0.1, device=device))
        return torch.optim.AdamW(model.parameters(), lr=rates[-1], fused=True, capturable=device == "cuda")

    twins = twin_training(device, make_optimizer)
    for rate in (0.1, 0.05, 0.2):
        for tensor in rates:
            tensor.fill_(rate)
        twins.assert_steps_agree(2)
    assert cudagraphs.stats().recordings == 1


def test_new_float_learning_rate_triggers_a_recapture(device):
    twins = twin_training(device, momentum)
    for rate in (0.1, 0.05, 0.1):
        for optimizer in twins.optimizers:
            optimizer.param_groups[0]["lr"] = rate
        twins.assert_steps_agree(3)
    assert cudagraphs.stats().recordings == 2


@pytest.mark.uncaptured
def test_float_learning_rate_that_changes_every_step_warns(device):
    twins = twin_training(device, momentum, max_recordings=2)

    def train():
        for rate in range(1, 6):
            for optimizer in twins.optimizers:
                optimizer.param_groups[0]["lr"] = rate * 0.01
            twins.assert_steps_agree(1)

    with pytest.warns(
        DynxWarning, match=r"the training step runs uncaptured.*, since lr of group 0 \(a number, not a tensor\) changes"
    ):
        train()


def test_new_parameter_addresses_trigger_a_recapture(device):
    twins = twin_training(device, momentum)
    twins.assert_steps_agree(3)
    for param in twins.captured.parameters():
        param.data = param.data.clone()
    twins.assert_steps_agree(3)
    assert cudagraphs.stats().recordings == 2


@pytest.mark.parametrize("is_named", [True, False])
def test_train_step_trains_parameters_that_belong_to_no_module(device, is_named):
    """Names that are computed are not searched: the parameters that were passed are checked without them."""
    weights = [torch.nn.Parameter(torch.ones(3, device=device)) for _ in range(2)]
    optimizers = [torch.optim.SGD([tensor], lr=0.1) for tensor in weights]
    config, owner = config_for(device), SimpleNamespace(weight=weights[0])
    losses = {
        True: lambda x: (x * weights[0]).square().sum(),
        False: lambda x: (x * getattr(owner, "".join(("wei", "ght")))).square().sum(),
    }
    step = cudagraphs.train_step(losses[is_named], weights[:1], optimizer=optimizers[0], config=config)
    for number in range(6):
        if number == 3:
            weights[0].data = weights[0].data.clone()
        x = torch.randn(3, device=device)
        optimizers[1].zero_grad()
        loss = (x * weights[1]).square().sum()
        loss.backward()
        optimizers[1].step()
        torch.testing.assert_close(step(x), loss.detach())
        torch.testing.assert_close(*weights)
    assert cudagraphs.stats().recordings == 2


def test_train_step_uses_loaded_optimizer_state(device):
    twins = twin_training(device, adam)
    twins.assert_steps_agree(3)
    state = copy.deepcopy(twins.optimizers[0].state_dict())
    twins.assert_steps_agree(3)
    for optimizer in twins.optimizers:
        optimizer.load_state_dict(copy.deepcopy(state))
    twins.assert_steps_agree(3)


def test_train_step_with_dropout_matches_eager(device):
    twins = twin_training(device, momentum)
    for model in twins.models:
        model.append(torch.nn.Dropout(0.5))
    for step in range(5):
        x = torch.randn(3, 4, device=device)
        torch.manual_seed(step)
        loss = twins.step(x)
        torch.manual_seed(step)
        torch.testing.assert_close(loss, twins.eager_step(x))


def test_train_step_returns_auxiliary_outputs_of_the_loss_function(device):
    model = batch_norm_mlp(device)

    def loss_fn(x, *, target):
        out = model(x)
        return (out - target).square().mean(), {"out": out, "rows": len(x)}

    config = config_for(device)
    step = cudagraphs.train_step(loss_fn, model.named_parameters(), config=config)
    for _ in range(4):
        x, target = torch.randn(3, 4, device=device), torch.randn(3, 2, device=device)
        loss, outputs = step(x, target=target)
        torch.testing.assert_close(loss, (outputs["out"] - target).square().mean())
        assert outputs["rows"] == 3
        assert not outputs["out"].requires_grad
    assert cudagraphs.stats().replays == 3


@on_cuda
def test_train_step_compiles_once_with_the_inner_backend(device):
    warm = torch.nn.Linear(1, 1).to(device)
    torch.compile(warm)(torch.ones(1, 1, device=device))  # inductor adds attributes to torch's classes when it runs first
    compiles = torch._dynamo.utils.counters["stats"]
    compiles.clear()
    twin_training(device, momentum, inner="inductor").assert_steps_agree(4)
    assert compiles["unique_graphs"] == 1
    assert cudagraphs.stats().replays == 3


@pytest.mark.uncaptured
@pytest.mark.parametrize("device", ["cpu"], indirect=True)
def test_optimizer_that_reads_a_tensor_value_warns(device):
    """On CUDA such an optimizer already raises in train_step: `test_optimizer_with_step_count_on_the_cpu_raises`."""
    twins = twin_training(device, lambda model: torch.optim.AdamW(model.parameters(), lr=torch.tensor(0.1), foreach=False))
    words = (
        r"the step of AdamW cannot be captured: .*_local_scalar_dense.* reads a value.*\n  at .*\n  create it with fused=True"
    )
    with pytest.warns(DynxWarning, match=words):
        twins.assert_steps_agree(3)


@pytest.mark.slow
@pytest.mark.uncaptured
def test_float_learning_rate_schedule_warns_that_every_step_differs(device):
    twins = twin_training(device, momentum)
    schedulers = [torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9) for optimizer in twins.optimizers]

    def train():
        for _ in range(12):
            twins.assert_steps_agree(1)
            for scheduler in schedulers:
                scheduler.step()

    with pytest.warns(
        DynxWarning,
        match=r"had \d+ different states, since lr of group 0 \(a number, not a tensor\) changes",
    ):
        train()


@pytest.mark.uncaptured
def test_train_step_trains_uncaptured_after_a_failed_capture(device):
    def branching(model, x):
        return square_mean(model, x) * (1 if x.sum().item() > 0 else 2)

    def reading(model, x):
        return square_mean(model, x) * x.sum().item()

    twins = twin_training(device, momentum, loss=branching)
    with pytest.warns(DynxWarning, match="the training step runs uncaptured"):
        twins.assert_steps_agree(4)
    assert cudagraphs.stats().replays == 0
    twins = twin_training(device, momentum, loss=reading, or_error=True)
    with pytest.raises(CaptureError):
        twins.assert_steps_agree(4)


@on_cuda
def test_train_step_is_captured_while_earlier_model_outputs_are_alive(device):
    """The outputs keep AccumulateGrad nodes alive, which run on the stream on which the parameters were first used."""
    twins = twin_training(device, momentum)
    x = torch.randn(3, 4, device=device)
    earlier = [twins.captured(x), twins.eager(x)]
    twins.assert_steps_agree(4)
    assert earlier
    assert cudagraphs.stats().replays == 3


def assert_raises(device, match, *, params=None, loss_fn=lambda x: x.sum(), call=None, **options):
    params = [*batch_norm_mlp(device).parameters()] if params is None else params
    if "optimizer" in options:
        options["optimizer"] = options["optimizer"](params)
    config = config_for(device)
    with pytest.raises(UsageError, match=match):
        cudagraphs.train_step(loss_fn, params, config=config, **options)(*(call or ()))


def params_with_hook(device, hook):
    params = [*batch_norm_mlp(device).parameters()]
    getattr(params[1], hook)(lambda gradient: None)
    return params


def with_step_hook(params):
    optimizer = torch.optim.SGD(params)
    optimizer.register_step_post_hook(lambda *_: None)
    return optimizer


def with_another_param(params):
    return torch.optim.SGD([*params, torch.ones(2, requires_grad=True)])


class FlatParameter(torch.nn.Parameter):
    """A stand-in for the parameter class of FSDP."""


@pytest.mark.slow
@pytest.mark.uncaptured
def test_train_step_raises_for_unsupported_arguments(device):
    assert_raises(device, "no parameter that was passed", params=[])
    assert_raises(device, "0 is not a leaf", params=[torch.ones(2, device=device, requires_grad=True) * 2])
    assert_raises(device, "0 is on meta", params=[torch.ones(2, device="meta", requires_grad=True)])
    assert_raises(device, "0 is a FlatParameter: FSDP", params=[FlatParameter(torch.ones(2, device=device))])
    assert_raises(device, "1 has a gradient hook", params=params_with_hook(device, "register_hook"))
    assert_raises(device, "1 has a gradient hook", params=params_with_hook(device, "register_post_accumulate_grad_hook"))
    assert_raises(device, "LBFGS calls the loss", optimizer=torch.optim.LBFGS)
    assert_raises(device, "SGD has step hooks", optimizer=with_step_hook)
    assert_raises(
        device, "group 0.*not passed", optimizer=lambda params: torch.optim.SGD([*params, torch.ones(2, requires_grad=True)])
    )
    assert_raises(device, "fused=True", optimizer=torch.optim.SGD, scaler=torch.amp.GradScaler(device))
    assert_raises(device, "needs an optimizer", scaler=torch.amp.GradScaler(device))
    assert_raises(device, "accumulate=0", accumulate=0)
    assert_raises(device, r"the loss is a tensor of shape \(2,\)", loss_fn=lambda x: x * 2, call=[torch.ones(2, device=device)])
    assert_raises(device, "the loss is of type float", loss_fn=lambda x: 1.0, call=[torch.ones(2, device=device)])
    assert_raises(device, "is on meta", call=[torch.ones(2, device="meta")])


@pytest.mark.slow
@pytest.mark.uncaptured
def test_train_step_raises_for_parameters_of_a_ddp_module(device):
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    try:
        model = batch_norm_mlp(device)
        wrapped = torch.nn.parallel.DistributedDataParallel(model)
        assert_raises(device, "belong to a DistributedDataParallel", params=[*model.parameters()])
        del wrapped
        gc.collect()
        cudagraphs.train_step(model, model.parameters(), config=config_for(device))
    finally:
        torch.distributed.destroy_process_group()


@on_cuda
def test_optimizer_with_step_count_on_the_cpu_raises(device):
    assert_raises(device, "create it with capturable=True", optimizer=torch.optim.Adam)
    assert_raises(device, "use an optimizer that has capturable=True", optimizer=torch.optim.Adagrad)


@on_cuda
def test_tensor_learning_rate_on_the_cpu_raises(device):
    def optimizer(params):
        return torch.optim.AdamW(params, lr=torch.tensor(0.1), fused=True, capturable=True)

    assert_raises(
        device, "lr of AdamW .group 0. is on the CPU\n  create it on the device, or pass a number", optimizer=optimizer
    )
