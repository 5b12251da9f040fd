"""A recorded step trains as an eager one does."""

from __future__ import annotations

import copy
import gc

import pytest
import torch
from cudagraphs_runtimes import NO_GPU, RUNTIMES

from dynx import cudagraphs
from dynx.errors import CaptureError, DynxWarning, UsageError


def model_of(device):
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.Tanh(), torch.nn.Linear(8, 2)).to(
        device
    )


class Pair:
    """A model that is trained by recorded steps, and its twin, by eager ones."""

    def __init__(self, device, optimizer=None, *, scaler=False, clip=None, accumulate=1, **config):
        self.device, self.clip, self.accumulate, self.calls = device, clip, accumulate, 0
        self.model = model_of(device)
        self.twin = copy.deepcopy(self.model)
        made = [None if optimizer is None else optimizer(each.parameters()) for each in (self.model, self.twin)]
        self.optimizer, self.other = made
        make = torch.amp.GradScaler
        self.scaler, self.other_scaler = (make(device, init_scale=8.0) if scaler else None for _ in range(2))
        self.step = cudagraphs.train_step(
            lambda x: self.loss(self.model, x),
            self.model.parameters(),
            optimizer=self.optimizer,
            scaler=self.scaler,
            clip_grad_norm=clip,
            accumulate=accumulate,
            config=cudagraphs.Config(runtime=RUNTIMES[device], **config),
        )

    def loss(self, model, x):
        return model(x).square().mean()

    def eager(self, x):
        if self.calls % self.accumulate == 0:
            self.twin.zero_grad()
        self.calls += 1
        loss = self.loss(self.twin, x)
        (loss if self.other_scaler is None else self.other_scaler.scale(loss)).backward()
        if self.calls % self.accumulate or self.other is None:
            return loss.detach()
        if self.clip is not None:
            if self.other_scaler is not None:
                self.other_scaler.unscale_(self.other)
            torch.nn.utils.clip_grad_norm_(self.twin.parameters(), self.clip)
        if self.other_scaler is None:
            self.other.step()
        else:
            self.other_scaler.step(self.other)
            self.other_scaler.update()
        return loss.detach()

    def both(self, steps=5, rows=3):
        for _ in range(steps):
            x = torch.randn(rows, 4, device=self.device)
            torch.testing.assert_close(self.step(x), self.eager(x))
            torch.testing.assert_close(self.model.state_dict(), self.twin.state_dict())
            for mine, theirs in zip(self.model.parameters(), self.twin.parameters(), strict=True):
                torch.testing.assert_close(mine.grad, theirs.grad)


def momentum(parameters):
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9, dampening=0.5)


def adam(parameters):
    given = [*parameters]
    return torch.optim.AdamW(given, lr=0.01, fused=True, capturable=given[0].is_cuda)


OPTIMIZERS = {"none": None, "SGD": momentum, "AdamW": adam}


@pytest.mark.parametrize("optimizer", OPTIMIZERS.values(), ids=OPTIMIZERS)
@pytest.mark.parametrize("outputs", ["clone", "alias", "static"])
def test_a_loop_trains(device, optimizer, outputs):
    Pair(device, optimizer, outputs=outputs).both(6)
    stats = cudagraphs.stats()
    assert (stats.recordings, stats.replays, stats.uncaptured) == (1, 5, 1)


def test_another_batch_size_gets_its_own(device):
    pair = Pair(device, adam)
    for rows in (3, 2, 3, 2, 3, 2):
        pair.both(2, rows)
    assert cudagraphs.stats().recordings == 2


@pytest.mark.parametrize("accumulate", [2, 3, 4])
@pytest.mark.parametrize("optimizer", [momentum, adam])
def test_gradients_add_up_over_calls(device, optimizer, accumulate):
    Pair(device, optimizer, accumulate=accumulate).both(5 * accumulate)
    assert cudagraphs.stats().recordings == min(accumulate, 3)


@pytest.mark.parametrize("accumulate", [1, 2])
def test_gradients_are_clipped(device, accumulate):
    Pair(device, momentum, clip=0.1, accumulate=accumulate).both(6)


@pytest.mark.parametrize("clip", [None, 0.1])
def test_a_scaler_skips_steps_without_reading(device, clip):
    pair = Pair(device, adam, scaler=True, clip=clip)
    pair.both(3)
    broken = torch.full((3, 4), float("inf"), device=device)
    before = [each.clone() for each in pair.model.parameters()]
    pair.step(broken), pair.eager(broken)
    torch.testing.assert_close(list(pair.model.parameters()), before)
    assert pair.scaler.get_scale() == pair.other_scaler.get_scale() == 4.0
    assert cudagraphs.stats().replays == 3


def test_a_learning_rate_that_is_a_tensor_may_change(device):
    rates = []

    def optimizer(parameters):
        rates.append(torch.tensor(0.1, device=device))
        return torch.optim.AdamW(parameters, lr=rates[-1], fused=True, capturable=device == "cuda")

    pair = Pair(device, optimizer)
    for rate in (0.1, 0.05, 0.2):
        for each in rates:
            each.fill_(rate)
        pair.both(2)
    assert cudagraphs.stats().recordings == 1


def test_a_learning_rate_that_is_a_number_is_noticed(device):
    pair = Pair(device, momentum)
    for rate in (0.1, 0.05, 0.1):
        pair.optimizer.param_groups[0]["lr"] = pair.other.param_groups[0]["lr"] = rate
        pair.both(3)
    assert cudagraphs.stats().recordings == 2


@pytest.mark.uncaptured
def test_a_number_that_changes_with_every_step_is_told(device):
    pair = Pair(device, momentum, max_recordings=2)

    def train():
        for rate in range(1, 6):
            pair.optimizer.param_groups[0]["lr"] = pair.other.param_groups[0]["lr"] = rate * 0.01
            pair.both(1)

    with pytest.warns(DynxWarning, match=r"the training step runs uncaptured.*: lr of group 0 \(a tensor may change\) changes"):
        train()


def test_parameters_that_move_are_noticed(device):
    pair = Pair(device, momentum)
    pair.both(3)
    for each in pair.model.parameters():
        each.data = each.data.clone()
    pair.both(3)
    assert cudagraphs.stats().recordings == 2


def test_parameters_of_no_module(device):
    weights = [torch.nn.Parameter(torch.ones(3, device=device)) for _ in range(2)]
    optimizers = [torch.optim.SGD([each], lr=0.1) for each in weights]
    config = cudagraphs.Config(runtime=RUNTIMES[device])
    step = cudagraphs.train_step(lambda x: (x * weights[0]).square().sum(), weights[:1], optimizer=optimizers[0], config=config)
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


def test_a_state_that_is_loaded_is_used(device):
    pair = Pair(device, adam)
    pair.both(3)
    state = copy.deepcopy(pair.optimizer.state_dict())
    pair.both(3)
    for each in (pair.optimizer, pair.other):
        each.load_state_dict(copy.deepcopy(state))
    pair.both(3)


def test_random_numbers_are_those_of_eager(device):
    pair = Pair(device, momentum)
    for each in (pair.model, pair.twin):
        each.append(torch.nn.Dropout(0.5))
    for step in range(5):
        x = torch.randn(3, 4, device=device)
        torch.manual_seed(step)
        mine = pair.step(x)
        torch.manual_seed(step)
        torch.testing.assert_close(mine, pair.eager(x))


def test_what_the_loss_gives_besides_is_given(device):
    model = model_of(device)

    def loss_fn(x, *, target):
        out = model(x)
        return (out - target).square().mean(), {"out": out, "rows": len(x)}

    config = cudagraphs.Config(runtime=RUNTIMES[device])
    step = cudagraphs.train_step(loss_fn, model.named_parameters(), config=config)
    for _ in range(4):
        x, target = torch.randn(3, 4, device=device), torch.randn(3, 2, device=device)
        loss, others = step(x, target=target)
        torch.testing.assert_close(loss, (others["out"] - target).square().mean())
        assert others["rows"] == 3
        assert not others["out"].requires_grad
    assert cudagraphs.stats().replays == 3


@pytest.mark.gpu
@NO_GPU
@pytest.mark.parametrize("device", ["cuda"], indirect=True)
def test_inner_is_compiled(device):
    compiles = torch._dynamo.utils.counters["stats"]
    compiles.clear()
    Pair(device, momentum, inner="inductor").both(4)
    assert compiles["unique_graphs"] == 1
    assert cudagraphs.stats().replays == 3


@pytest.mark.uncaptured
@pytest.mark.parametrize("device", ["cpu"], indirect=True)
def test_optimizers_that_read_values_are_named(device):
    """On CUDA such an optimizer is refused when the step is made: `test_an_optimizer_that_counts_on_the_cpu_is_refused`."""
    pair = Pair(device, lambda params: torch.optim.AdamW(params, lr=torch.tensor(0.1), foreach=False))
    words = (
        r"the step of AdamW: aten._local_scalar_dense.default reads a value.*\n  make it with fused=True, or capturable=True"
    )
    with pytest.warns(DynxWarning, match=words):
        pair.both(3)


@pytest.mark.uncaptured
def test_a_schedule_of_numbers_is_told_early(device):
    pair = Pair(device, momentum)
    made = [torch.optim.lr_scheduler.ExponentialLR(each, 0.9) for each in (pair.optimizer, pair.other)]

    def train():
        for _ in range(12):
            pair.both(1)
            for each in made:
                each.step()

    with pytest.warns(DynxWarning, match=r"never called twice alike: lr of group 0 \(a tensor may change\) changes"):
        train()


@pytest.mark.uncaptured
def test_what_cannot_be_captured_trains_as_it_is(device):
    pair = Pair(device, momentum)
    pair.loss = lambda model, x: model(x).square().mean() * (1 if x.sum().item() > 0 else 2)
    with pytest.warns(DynxWarning, match="the training step runs uncaptured"):
        pair.both(4)
    assert cudagraphs.stats().replays == 0
    pair = Pair(device, momentum, or_error=True)
    pair.loss = lambda model, x: model(x).square().mean() * x.sum().item()
    with pytest.raises(CaptureError):
        pair.both(4)


@pytest.mark.gpu
@NO_GPU
@pytest.mark.parametrize("device", ["cuda"], indirect=True)
def test_results_of_earlier_calls_may_be_held(device):
    """They lead back to the parameters, whose gradients autograd adds to on the stream where these were used first."""
    pair = Pair(device, momentum)
    x = torch.randn(3, 4, device=device)
    held = [pair.model(x), pair.twin(x)]
    pair.both(4)
    assert held
    assert cudagraphs.stats().replays == 3


def refused(device, match, *, params=None, loss_fn=lambda x: x.sum(), call=None, **given):
    params = [*model_of(device).parameters()] if params is None else params
    if "optimizer" in given:
        given["optimizer"] = given["optimizer"](params)
    config = cudagraphs.Config(runtime=RUNTIMES[device])
    with pytest.raises(UsageError, match=match):
        cudagraphs.train_step(loss_fn, params, config=config, **given)(*(call or ()))


def hooked(device, hook):
    params = [*model_of(device).parameters()]
    getattr(params[1], hook)(lambda gradient: None)
    return params


def with_step_hook(params):
    optimizer = momentum(params)
    optimizer.register_step_post_hook(lambda *_: None)
    return optimizer


class FlatParameter(torch.nn.Parameter):
    """As FSDP has."""


@pytest.mark.uncaptured
def test_what_it_cannot_take_is_refused_by_name(device):
    refused(device, "no parameters", params=[])
    refused(device, "0 is computed from others", params=[torch.ones(2, device=device, requires_grad=True) * 2])
    refused(device, "0 is on meta", params=[torch.ones(2, device="meta", requires_grad=True)])
    refused(device, "0 is a FlatParameter: FSDP", params=[FlatParameter(torch.ones(2, device=device))])
    refused(device, "1 has a hook", params=hooked(device, "register_hook"))
    refused(device, "1 has a hook", params=hooked(device, "register_post_accumulate_grad_hook"))
    refused(device, "LBFGS calls the loss", optimizer=torch.optim.LBFGS)
    refused(device, "SGD has hooks on its step", optimizer=with_step_hook)
    refused(device, "group 0.*not given", optimizer=lambda params: momentum([*params, torch.ones(2, requires_grad=True)]))
    refused(device, "fused=True", optimizer=momentum, scaler=torch.amp.GradScaler(device))
    refused(device, "needs an optimizer", scaler=torch.amp.GradScaler(device))
    refused(device, "accumulate=0", accumulate=0)
    refused(device, r"the loss is a tensor of shape \(2,\)", loss_fn=lambda x: x * 2, call=[torch.ones(2, device=device)])
    refused(device, "the loss is a float", loss_fn=lambda x: 1.0, call=[torch.ones(2, device=device)])
    refused(device, "is on meta", call=[torch.ones(2, device="meta")])


@pytest.mark.uncaptured
def test_what_belongs_to_other_processes_is_refused(device):
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    try:
        model = model_of(device)
        wrapped = torch.nn.parallel.DistributedDataParallel(model)
        refused(device, "belong to a DistributedDataParallel", params=[*model.parameters()])
        del wrapped
        gc.collect()
        cudagraphs.train_step(model, model.parameters(), config=cudagraphs.Config(runtime=RUNTIMES[device]))
    finally:
        torch.distributed.destroy_process_group()


@pytest.mark.gpu
@NO_GPU
@pytest.mark.parametrize("device", ["cuda"], indirect=True)
def test_an_optimizer_that_counts_on_the_cpu_is_refused(device):
    refused(device, "make it with capturable=True", optimizer=torch.optim.Adam)
    refused(device, "use one that has capturable=True", optimizer=torch.optim.Adagrad)


@pytest.mark.gpu
@NO_GPU
@pytest.mark.parametrize("device", ["cuda"], indirect=True)
def test_a_learning_rate_on_the_cpu_is_refused(device):
    def optimizer(params):
        return torch.optim.AdamW(params, lr=torch.tensor(0.1), fused=True, capturable=True)

    refused(device, "lr of AdamW .group 0. is on the CPU\n  make it on the device, or a number", optimizer=optimizer)
