"""State that a training step depends on besides its arguments: parameters, optimizer, scaler, modules, other leaves."""

from __future__ import annotations

import copy
import pickle
import random
from collections import deque

import pytest
import torch
from support.configs import config_for
from support.twin_training import TwinTraining, sgd
from torch import nn

from dynx import cudagraphs
from dynx.errors import DynxWarning, UsageError


class Body(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.body, self.head = nn.Linear(3, 3), nn.Linear(3, 1)

    def forward(self, x):
        return self.head(self.body(x)).square().mean()


def twin_training(device, make_optimizer, **options):
    return TwinTraining(device, Body().to(device), make_optimizer, **options)


def test_train_step_matches_eager_after_freezing_and_unfreezing_parameters(device):
    twins = twin_training(device, sgd)
    twins.assert_steps_agree(4, shape=(4, 3))
    for requires_grad in (False, True):
        twins.change(lambda model, optimizer, requires_grad=requires_grad: model.body.requires_grad_(requires_grad))
        twins.change(lambda model, optimizer: optimizer.zero_grad())
        twins.assert_steps_agree(4, shape=(4, 3))
        twins.assert_steps_agree(3, shape=(5, 3))


def test_train_step_matches_eager_after_unfreezing_initially_frozen_parameters(device):
    def make(model):
        model.body.requires_grad_(False)
        return sgd(model)

    twins = twin_training(device, make)
    twins.assert_steps_agree(4, shape=(4, 3))
    twins.change(lambda model, optimizer: model.body.requires_grad_(True))
    twins.assert_steps_agree(4, shape=(4, 3))
    twins.assert_steps_agree(3, shape=(2, 3))


def test_train_step_matches_eager_after_adding_and_removing_parameter_groups(device):
    twins = twin_training(device, lambda model: torch.optim.SGD(model.head.parameters(), lr=0.1))
    twins.change(lambda model, optimizer: model.body.requires_grad_(False))
    twins.assert_steps_agree(4, shape=(4, 3))
    twins.change(lambda model, optimizer: optimizer.add_param_group({"params": list(model.body.parameters())}))
    twins.change(lambda model, optimizer: model.body.requires_grad_(True))
    twins.assert_steps_agree(4, shape=(4, 3))
    twins.change(lambda model, optimizer: optimizer.param_groups.pop())
    twins.change(lambda model, optimizer: model.body.requires_grad_(False))
    twins.change(lambda model, optimizer: [setattr(param, "grad", None) for param in model.body.parameters()])
    twins.assert_steps_agree(4, shape=(4, 3))


def test_train_step_matches_eager_after_lists_of_groups_change(device):
    """The lists themselves, not the dicts that hold them: nobody is notified of these changes."""
    twins = twin_training(device, lambda model: torch.optim.SGD(model.body.parameters(), lr=0.1))
    changes = (
        lambda model, optimizer: optimizer.param_groups[0]["params"].append(model.head.bias),
        lambda model, optimizer: optimizer.param_groups[0]["params"].pop(0),
        lambda model, optimizer: optimizer.param_groups.append({**optimizer.defaults, "params": [model.head.weight]}),
        lambda model, optimizer: optimizer.param_groups.pop(0),
    )
    for change in changes:
        twins.assert_steps_agree(4, shape=(4, 3))
        twins.change(change)
    twins.assert_steps_agree(4, shape=(4, 3))


def test_train_step_matches_eager_after_parameters_leave_a_group_that_is_no_list(device):
    def make(model):
        optimizer = sgd(model)
        optimizer.param_groups[0]["params"] = deque(optimizer.param_groups[0]["params"])
        return optimizer

    twins = twin_training(device, make)
    twins.assert_steps_agree(4, shape=(4, 3))
    twins.change(lambda model, optimizer: optimizer.param_groups[0]["params"].pop())
    twins.assert_steps_agree(4, shape=(4, 3))


def test_train_step_matches_eager_after_optimizer_state_is_replaced(device):
    twins = twin_training(device, lambda model: sgd(model, momentum=0.9))
    twins.assert_steps_agree(4, shape=(4, 3))

    def forget(model, optimizer):
        weight = model.head.weight
        optimizer.state[weight]["momentum_buffer"] = torch.zeros_like(weight)

    twins.change(forget)
    twins.assert_steps_agree(4, shape=(4, 3))
    twins.change(lambda model, optimizer: optimizer.state.clear())
    twins.assert_steps_agree(4, shape=(4, 3))


class Counting(torch.optim.Optimizer):
    """Counts its steps in a Python number, as some optimizers do."""

    def __init__(self, params):
        super().__init__(params, {"lr": 0.1})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for param in group["params"]:
                state = self.state[param]
                state["step"] = state.get("step", 0) + 1
                param.sub_(param.grad, alpha=group["lr"] / state["step"])


@pytest.mark.uncaptured
def test_optimizer_with_a_python_step_count_runs_uncaptured(device):
    twins = twin_training(device, lambda model: Counting(model.parameters()))
    with pytest.warns(DynxWarning, match="the training step runs uncaptured: the function assigns step,"):
        twins.assert_steps_agree(6, shape=(4, 3))


def test_optimizer_with_unhashable_hyperparameters_matches_eager(device):
    options = {"capturable": True} if device == "cuda" else {}
    twins = twin_training(device, lambda model: torch.optim.AdamW(model.parameters(), betas=[0.9, 0.99], fused=True, **options))
    twins.assert_steps_agree(4, shape=(4, 3))


def test_train_step_matches_eager_in_train_and_eval_mode(device):
    twins = twin_training(device, sgd)
    for model in twins.models:
        model.body = nn.Sequential(model.body, nn.Dropout(1.0))
    twins.assert_steps_agree(3, shape=(4, 3))
    twins.change(lambda model, optimizer: model.eval())
    twins.assert_steps_agree(3, shape=(4, 3))


def test_gradient_and_step_hooks_registered_after_capture_raise(device):
    twins = twin_training(device, sgd)
    twins.assert_steps_agree(3, shape=(4, 3))
    handle = twins.captured.head.weight.register_hook(lambda gradient: gradient * 0)
    with pytest.raises(UsageError, match="has a gradient hook"):
        twins.step(torch.ones(4, 3, device=device))
    handle.remove()
    twins.assert_steps_agree(2, shape=(4, 3))
    twins.optimizers[0].register_step_post_hook(lambda *args: None)
    with pytest.raises(UsageError, match="has step hooks"):
        twins.step(torch.ones(4, 3, device=device))


@pytest.mark.uncaptured
def test_leaf_tensors_that_need_gradients_but_are_not_in_params_raise(device):
    model = Body().to(device)
    config = config_for(device)
    step = cudagraphs.train_step(model, model.head.parameters(), config=config)
    with pytest.raises(UsageError, match=r"for a tensor of size \(3, ?3?\) that is not among the parameters"):
        step(torch.ones(4, 3, device=device))
    model.body.requires_grad_(False)
    with pytest.raises(UsageError, match=r"for a tensor of size \(4, 3\) that is not among the parameters"):
        step(torch.ones(4, 3, device=device, requires_grad=True))
    assert step(torch.ones(4, 3, device=device)) > 0


def test_train_step_sets_gradients_again_after_zero_grad(device):
    twins = twin_training(device, sgd)
    for rows in (4, 4, 4, 2, 4, 4):
        twins.captured.zero_grad()
        twins.assert_steps_agree(1, shape=(rows, 3))


def test_accumulation_steps_that_use_different_parameters_match_eager(device):
    """Unused parameters have zero gradients, as after zero_grad(set_to_none=False)."""
    torch.manual_seed(0)
    models = [nn.ModuleDict({"t": nn.Linear(3, 3), "a": nn.Linear(3, 1), "b": nn.Linear(3, 1)}).to(device)]
    models.append(copy.deepcopy(models[0]))
    optimizers = [torch.optim.SGD(module.parameters(), lr=0.1, weight_decay=0.1) for module in models]

    def loss(model, x, name):
        return model[name](model["t"](x)).square().mean() / 2

    step = cudagraphs.train_step(
        lambda x, name: loss(models[0], x, name),
        models[0].parameters(),
        optimizer=optimizers[0],
        accumulate=2,
        config=config_for(device),
    )
    x = torch.ones(2, 3, device=device)
    for number, name in enumerate("abbaabbabbaaabab"):
        step(x, name)
        loss(models[1], x, name).backward()
        if number % 2:
            optimizers[1].step()
            optimizers[1].zero_grad(set_to_none=False)
    for param, twin_param in zip(*(module.parameters() for module in models), strict=True):
        torch.testing.assert_close(param, twin_param)


def test_freezing_parameters_between_accumulation_steps_matches_eager(device):
    """A frozen parameter has no gradient from the next step on, so momentum and weight decay do not change it."""
    torch.manual_seed(0)
    models = [nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 1)).to(device)]
    models.append(copy.deepcopy(models[0]))
    optimizers = [torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9, weight_decay=0.1) for module in models]
    step = cudagraphs.train_step(
        lambda x: models[0](x).square().mean(),
        models[0].parameters(),
        optimizer=optimizers[0],
        accumulate=2,
        config=config_for(device),
    )
    for number in range(30):
        if number in (5, 11, 16, 20, 25):
            for module in models:
                module[0].requires_grad_(number in (11, 20))
        x = torch.randn(2, 3, device=device)
        loss = models[1](x).square().mean()
        loss.backward()
        torch.testing.assert_close(step(x), loss.detach())
        if number % 2:
            optimizers[1].step()
            optimizers[1].zero_grad()
        for param, twin_param in zip(*(module.parameters() for module in models), strict=True):
            torch.testing.assert_close(param, twin_param)
    assert cudagraphs.stats().replays > 10


@pytest.mark.parametrize("change", ["halve", "replace", "none", "zero"])
def test_changing_gradients_between_accumulation_steps_matches_eager(device, change):
    models = [Body().to(device) for _ in range(2)]
    optimizers = [sgd(module) for module in models]
    config = config_for(device)
    step = cudagraphs.train_step(models[0], models[0].parameters(), optimizer=optimizers[0], accumulate=2, config=config)
    for number in range(8):
        if number % 2:
            for param in (*models[0].parameters(), *models[1].parameters()):
                if change == "halve":
                    param.grad.mul_(0.5)
                elif change == "replace":
                    param.grad = param.grad * 0.5
                else:
                    param.grad = None if change == "none" else torch.zeros_like(param)
        x = torch.randn(4, 3, device=device)
        loss = models[1](x)
        loss.backward()
        torch.testing.assert_close(step(x), loss.detach())
        if number % 2:
            optimizers[1].step()
            optimizers[1].zero_grad()
    assert cudagraphs.stats().replays == 6
    for param, twin_param in zip(*(module.parameters() for module in models), strict=True):
        torch.testing.assert_close(param, twin_param)


@pytest.mark.uncaptured
def test_module_argument_without_trained_parameters_runs_uncaptured(device):
    """The state of a module that owns none of the trained parameters is not checked, so the call is not captured."""
    student, teacher = nn.Linear(3, 1).to(device), nn.Dropout().to(device)

    def loss(teacher, x):
        return student(x).mean() * 0 + teacher(x).mean()

    config = config_for(device)
    step = cudagraphs.train_step(loss, student.parameters(), config=config)
    x = torch.ones(64, 3, device=device)
    with pytest.warns(
        DynxWarning,
        match="argument teacher is of type Dropout, whose changes cannot be detected\n  reference it from the",
    ):
        step(teacher, x)
    step(teacher, x)
    teacher.eval()
    assert [step(teacher, x).item() for _ in range(2)] == [1, 1]


@pytest.mark.uncaptured
@pytest.mark.parametrize("how", [copy.deepcopy, pickle.dumps])
@pytest.mark.parametrize("accumulate", [1, 2])
def test_copying_or_pickling_a_train_step_raises(device, how, accumulate):
    """A copied step would train the original parameters."""
    model = Body().to(device)
    config = config_for(device)
    step = cudagraphs.train_step(model, model.parameters(), optimizer=sgd(model), accumulate=accumulate, config=config)
    with pytest.raises(UsageError, match="cannot be copied or pickled\n  call train_step again"):
        how(step)


def test_train_step_ignores_unrelated_broken_modules(device):
    class Unfinished(nn.Module):
        def __init__(self, modules):
            modules.append(self)
            self.number = 3

    class Odd(nn.Linear):
        def parameters(self, rate):
            return rate

    modules = [Odd(3, 3)]
    Unfinished(modules)
    model = nn.Linear(3, 1).to(device)
    config = config_for(device)
    step = cudagraphs.train_step(lambda module, x: module(x).sum(), model.parameters(), config=config)
    for _ in range(3):
        step(model, torch.ones(2, 3, device=device))
    assert cudagraphs.stats().replays == 2


def test_train_step_trains_with_a_disabled_grad_scaler(device):
    model = Body().to(device)
    scaler = torch.amp.GradScaler(device, enabled=False)
    step = cudagraphs.train_step(
        model,
        model.parameters(),
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        scaler=scaler,
        config=config_for(device),
    )
    losses = [step(torch.ones(4, 3, device=device)).item() for _ in range(4)]
    assert losses == sorted(losses, reverse=True)


class Averaging(torch.optim.Optimizer):
    """Rebinds its state to new tensors in each step."""

    def __init__(self, params):
        super().__init__(params, {"lr": 0.1})

    @torch.no_grad()
    def step(self):
        for param in self.param_groups[0]["params"]:
            state = self.state[param]
            state["mean"] = state["mean"] * 0.9 + param.grad if "mean" in state else param.grad.clone()
            param.sub_(state["mean"], alpha=0.1)


@pytest.mark.uncaptured
def test_optimizer_that_rebinds_its_state_runs_uncaptured(device):
    twins = twin_training(device, lambda model: Averaging(model.parameters()))
    with pytest.warns(DynxWarning, match="the training step runs uncaptured: the function assigns mean,"):
        twins.assert_steps_agree(6, shape=(4, 3))


class AssignsBuffer(nn.Module):
    def __init__(self, device):
        super().__init__()
        self.register_buffer("mean", torch.zeros(3, device=device))

    def forward(self, x):
        self.mean = self.mean * 0.9 + x.detach().mean(0) * 0.1
        return x - self.mean


class Trainer:
    def __init__(self, model):
        self.model = model

    def loss(self, x):
        return self.model(x).square().mean()

    def hidden(self, x):
        return vars(self)["model"](x).square().mean()


@pytest.mark.uncaptured
@pytest.mark.filterwarnings("ignore:the training step runs uncaptured. the function changes attribute mean")
@pytest.mark.parametrize("assigns", [False, True], ids=["dropout", "assigned buffer"])
@pytest.mark.parametrize("name", ["loss", "hidden"])
def test_train_step_of_a_method_whose_object_holds_the_module_matches_eager(device, name, assigns):
    torch.manual_seed(0)
    trainers = [Trainer(nn.Sequential(nn.Linear(3, 3), AssignsBuffer(device) if assigns else nn.Dropout()).to(device))]
    trainers.append(copy.deepcopy(trainers[0]))
    captured, eager = (getattr(module, name) for module in trainers)
    optimizers = [torch.optim.SGD(module.model.parameters(), lr=0.1) for module in trainers]
    config = config_for(device)
    step = cudagraphs.train_step(captured, trainers[0].model.parameters(), optimizer=optimizers[0], config=config)
    for number in range(8):
        x = torch.full((4, 3), float(number), device=device)
        for module in trainers:
            module.model.train(number < 5)
        torch.manual_seed(number)
        actual = step(x)
        torch.manual_seed(number)
        optimizers[1].zero_grad()
        loss = eager(x)
        loss.backward()
        optimizers[1].step()
        torch.testing.assert_close(actual, loss.detach())
    torch.testing.assert_close(*(module.model.state_dict() for module in trainers))
    assert (cudagraphs.stats().replays == 0) == assigns


@pytest.mark.parametrize("norm", ["weight_norm", "spectral_norm"])
def test_train_step_with_weight_and_spectral_norm_matches_eager(device, norm):
    def make(model):
        torch.manual_seed(1)
        getattr(torch.nn.utils, norm)(model.head)
        model.to(device)
        return sgd(model)

    twin_training(device, make).assert_steps_agree(6, shape=(4, 3))
    assert cudagraphs.stats().replays == 5


@pytest.mark.parametrize("way", ["train_step", "graphed", "in place"])
def test_backward_of_an_autograd_graph_built_before_the_capture_matches_eager(device, way):
    """The autograd graph keeps AccumulateGrad nodes of another stream alive, for which a capture cannot wait."""
    model = Body().to(device)
    model.head.weight.is_special = True  # attributes on a parameter prevent its replacement by another leaf
    x = torch.ones(4, 3, device=device)
    before = model(x)
    config = config_for(device, gradients="in_place" if way == "in place" else "autograd")
    if way == "train_step":
        run = cudagraphs.train_step(model, model.parameters(), config=config)
    elif way == "graphed":
        run = cudagraphs.graphed(Graphed(model), (x,), config=config)
    else:
        run = torch.compile(model, backend=cudagraphs.backend(config))
    for _ in range(4):
        model.zero_grad()
        loss = run(x)
        if way != "train_step":
            loss.backward()
        actual = {name: param.grad.clone() for name, param in model.named_parameters()}
    assert cudagraphs.stats().replays > 0
    model.zero_grad()
    before.backward()
    torch.testing.assert_close({name: param.grad for name, param in model.named_parameters()}, actual)


class Graphed(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, x):
        return self.model(x)


class StoresTensors(Body):
    def forward(self, x):
        hidden = self.body(x)
        self.shape, self.also = hidden.shape, hidden.abs().mean()
        return self.head(hidden).square().mean() + self.also


def test_forward_that_stores_tensors_on_its_module_is_captured(device):
    torch.manual_seed(0)
    model = StoresTensors().to(device)
    config = config_for(device)
    step = cudagraphs.train_step(lambda module, x: module(x), model.parameters(), optimizer=sgd(model), config=config)
    for number in range(6):
        x = torch.full((4, 3), float(number), device=device)
        expected = model(x).detach()
        torch.testing.assert_close(step(model, x), expected)
    assert cudagraphs.stats().replays == 5


def test_models_with_meta_parameters_and_sparse_buffers_are_captured(device):
    model = Body().to(device)
    model.other = nn.Parameter(torch.empty(3, device="meta"), requires_grad=False)
    model.register_buffer("adjacent", torch.eye(3).to_sparse().to(device))
    step = cudagraphs.train_step(model, model.parameters(), optimizer=sgd(model.body), config=config_for(device))
    for _ in range(4):
        step(torch.ones(4, 3, device=device))
    assert cudagraphs.stats().replays == 3


@pytest.mark.parametrize("seed", range(6))
def test_random_submodules_in_accumulation_steps_match_eager(device, seed):
    rng = random.Random(seed)
    models = [nn.ModuleList([nn.Linear(3, 1), nn.Linear(3, 1)]).to(device)]
    models.append(copy.deepcopy(models[0]))
    optimizers = [sgd(module) for module in models]
    config = config_for(device)
    step = cudagraphs.train_step(
        lambda x, which: models[0][which](x).square().mean(),
        models[0].parameters(),
        optimizer=optimizers[0],
        accumulate=2,
        config=config,
    )
    for number in range(14):
        x, which = torch.randn(2, 3, device=device), rng.randrange(2)
        loss = models[1][which](x).square().mean()
        loss.backward()
        torch.testing.assert_close(step(x, which), loss.detach())
        if number % 2:
            optimizers[1].step()
            optimizers[1].zero_grad()
