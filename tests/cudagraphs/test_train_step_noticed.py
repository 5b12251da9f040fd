"""What a training step depends on besides its arguments: parameters, optimizer, scaler, modules, other leaves."""

from __future__ import annotations

import copy
import pickle
import random

import pytest
import torch
from cudagraphs_runtimes import RUNTIMES
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


class Twins:
    """A model that is trained by recordings, and one that is trained as it is."""

    def __init__(self, device, make_optimizer, **how):
        self.device = device
        self.models = [Body().to(device) for _ in range(2)]
        self.optimizers = [make_optimizer(each) for each in self.models]
        config = cudagraphs.Config(runtime=RUNTIMES[device])
        self.recorded = cudagraphs.train_step(
            self.models[0], self.models[0].parameters(), optimizer=self.optimizers[0], config=config, **how
        )

    def both(self, change):
        for model, optimizer in zip(self.models, self.optimizers, strict=True):
            change(model, optimizer)

    def step(self, times=1, rows=4):
        for _ in range(times):
            x = torch.ones(rows, 3, device=self.device)
            loss = self.recorded(x)
            self.optimizers[1].zero_grad()
            expected = self.models[1](x)
            expected.backward()
            self.optimizers[1].step()
            torch.testing.assert_close(loss, expected.detach())
            for mine, theirs in zip(*(each.parameters() for each in self.models), strict=True):
                torch.testing.assert_close(mine, theirs)
                torch.testing.assert_close(mine.grad, theirs.grad)


def sgd(model, **how):
    return torch.optim.SGD(model.parameters(), lr=0.1, **how)


def test_freezing_and_thawing(device):
    twins = Twins(device, sgd)
    twins.step(4)
    for needs in (False, True):
        twins.both(lambda model, optimizer, needs=needs: model.body.requires_grad_(needs))
        twins.both(lambda model, optimizer: optimizer.zero_grad())
        twins.step(4)
        twins.step(3, rows=5)


def test_parameters_that_are_thawed_later(device):
    def make(model):
        model.body.requires_grad_(False)
        return sgd(model)

    twins = Twins(device, make)
    twins.step(4)
    twins.both(lambda model, optimizer: model.body.requires_grad_(True))
    twins.step(4)
    twins.step(3, rows=2)


def test_groups_that_come_and_go(device):
    twins = Twins(device, lambda model: torch.optim.SGD(model.head.parameters(), lr=0.1))
    twins.both(lambda model, optimizer: model.body.requires_grad_(False))
    twins.step(4)
    twins.both(lambda model, optimizer: optimizer.add_param_group({"params": list(model.body.parameters())}))
    twins.both(lambda model, optimizer: model.body.requires_grad_(True))
    twins.step(4)
    twins.both(lambda model, optimizer: optimizer.param_groups.pop())
    twins.both(lambda model, optimizer: model.body.requires_grad_(False))
    twins.both(lambda model, optimizer: [setattr(each, "grad", None) for each in model.body.parameters()])
    twins.step(4)


def test_state_that_is_replaced(device):
    twins = Twins(device, lambda model: sgd(model, momentum=0.9))
    twins.step(4)

    def forget(model, optimizer):
        weight = model.head.weight
        optimizer.state[weight]["momentum_buffer"] = torch.zeros_like(weight)

    twins.both(forget)
    twins.step(4)
    twins.both(lambda model, optimizer: optimizer.state.clear())
    twins.step(4)


class Counting(torch.optim.Optimizer):
    """Counts its steps in Python, as some optimizers do."""

    def __init__(self, params):
        super().__init__(params, {"lr": 0.1})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for each in group["params"]:
                state = self.state[each]
                state["step"] = state.get("step", 0) + 1
                each.sub_(each.grad, alpha=group["lr"] / state["step"])


@pytest.mark.uncaptured
def test_optimizers_that_count_in_python(device):
    twins = Twins(device, lambda model: Counting(model.parameters()))
    with pytest.warns(DynxWarning, match="the training step runs uncaptured: it changes step itself"):
        twins.step(6)


def test_numbers_that_cannot_be_hashed(device):
    how = {"capturable": True} if device == "cuda" else {}
    twins = Twins(device, lambda model: torch.optim.AdamW(model.parameters(), betas=[0.9, 0.99], fused=True, **how))
    twins.step(4)


def test_train_and_eval(device):
    twins = Twins(device, sgd)
    for model in twins.models:
        model.body = nn.Sequential(model.body, nn.Dropout(1.0))
    twins.step(3)
    twins.both(lambda model, optimizer: model.eval())
    twins.step(3)


def test_hooks_that_come_later_are_refused(device):
    twins = Twins(device, sgd)
    twins.step(3)
    handle = twins.models[0].head.weight.register_hook(lambda gradient: gradient * 0)
    with pytest.raises(UsageError, match="has a hook on its gradient"):
        twins.recorded(torch.ones(4, 3, device=device))
    handle.remove()
    twins.step(2)
    twins.optimizers[0].register_step_post_hook(lambda *args: None)
    with pytest.raises(UsageError, match="has hooks on its step"):
        twins.recorded(torch.ones(4, 3, device=device))


@pytest.mark.uncaptured
def test_leaves_that_are_not_among_the_parameters_are_refused(device):
    model = Body().to(device)
    config = cudagraphs.Config(runtime=RUNTIMES[device])
    step = cudagraphs.train_step(model, model.head.parameters(), config=config)
    with pytest.raises(UsageError, match=r"for a tensor of size \(3, ?3?\) that is not among the parameters"):
        step(torch.ones(4, 3, device=device))
    model.body.requires_grad_(False)
    with pytest.raises(UsageError, match=r"for a tensor of size \(4, 3\) that is not among the parameters"):
        step(torch.ones(4, 3, device=device, requires_grad=True))
    assert step(torch.ones(4, 3, device=device)) > 0


def test_gradients_that_are_taken_away_come_back(device):
    twins = Twins(device, sgd)
    for rows in (4, 4, 4, 2, 4, 4):
        twins.models[0].zero_grad()
        twins.step(rows=rows)


def test_parameters_that_only_later_parts_use(device):
    """Gradients are zeros where a part does not come by, as of zero_grad(set_to_none=False)."""
    torch.manual_seed(0)
    models = [nn.ModuleDict({"t": nn.Linear(3, 3), "a": nn.Linear(3, 1), "b": nn.Linear(3, 1)}).to(device)]
    models.append(copy.deepcopy(models[0]))
    optimizers = [torch.optim.SGD(each.parameters(), lr=0.1, weight_decay=0.1) for each in models]

    def loss(model, x, name):
        return model[name](model["t"](x)).square().mean() / 2

    step = cudagraphs.train_step(
        lambda x, name: loss(models[0], x, name),
        models[0].parameters(),
        optimizer=optimizers[0],
        accumulate=2,
        config=cudagraphs.Config(runtime=RUNTIMES[device]),
    )
    x = torch.ones(2, 3, device=device)
    for number, name in enumerate("abbaabbabbaaabab"):
        step(x, name)
        loss(models[1], x, name).backward()
        if number % 2:
            optimizers[1].step()
            optimizers[1].zero_grad(set_to_none=False)
    for mine, theirs in zip(*(each.parameters() for each in models), strict=True):
        torch.testing.assert_close(mine, theirs)


def test_parameters_that_are_frozen_between_parts(device):
    """A frozen one has no gradient from the next step on, so momentum and weight decay leave it where it is."""
    torch.manual_seed(0)
    models = [nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 1)).to(device)]
    models.append(copy.deepcopy(models[0]))
    optimizers = [torch.optim.SGD(each.parameters(), lr=0.1, momentum=0.9, weight_decay=0.1) for each in models]
    step = cudagraphs.train_step(
        lambda x: models[0](x).square().mean(),
        models[0].parameters(),
        optimizer=optimizers[0],
        accumulate=2,
        config=cudagraphs.Config(runtime=RUNTIMES[device]),
    )
    for number in range(30):
        if number in (5, 11, 16, 20, 25):
            for each in models:
                each[0].requires_grad_(number in (11, 20))
        x = torch.randn(2, 3, device=device)
        loss = models[1](x).square().mean()
        loss.backward()
        torch.testing.assert_close(step(x), loss.detach())
        if number % 2:
            optimizers[1].step()
            optimizers[1].zero_grad()
        for mine, theirs in zip(*(each.parameters() for each in models), strict=True):
            torch.testing.assert_close(mine, theirs)
    assert cudagraphs.stats().replays > 10


@pytest.mark.parametrize("change", ["halve", "put", "none", "zero"])
def test_gradients_that_are_changed_in_the_middle_of_a_step(device, change):
    models = [Body().to(device) for _ in range(2)]
    optimizers = [sgd(each) for each in models]
    config = cudagraphs.Config(runtime=RUNTIMES[device])
    step = cudagraphs.train_step(models[0], models[0].parameters(), optimizer=optimizers[0], accumulate=2, config=config)
    for number in range(8):
        if number % 2:
            for each in (*models[0].parameters(), *models[1].parameters()):
                if change == "halve":
                    each.grad.mul_(0.5)
                elif change == "put":
                    each.grad = each.grad * 0.5
                else:
                    each.grad = None if change == "none" else torch.zeros_like(each)
        x = torch.randn(4, 3, device=device)
        loss = models[1](x)
        loss.backward()
        torch.testing.assert_close(step(x), loss.detach())
        if number % 2:
            optimizers[1].step()
            optimizers[1].zero_grad()
    assert cudagraphs.stats().replays == 6
    for mine, theirs in zip(*(each.parameters() for each in models), strict=True):
        torch.testing.assert_close(mine, theirs)


@pytest.mark.uncaptured
def test_modules_among_arguments(device):
    """What is not among the parameters is not looked at, so such a call is not recorded."""
    student, teacher = nn.Linear(3, 1).to(device), nn.Dropout().to(device)

    def loss(teacher, x):
        return student(x).mean() * 0 + teacher(x).mean()

    config = cudagraphs.Config(runtime=RUNTIMES[device])
    step = cudagraphs.train_step(loss, student.parameters(), config=config)
    x = torch.ones(64, 3, device=device)
    with pytest.warns(DynxWarning, match="teacher is a Dropout, inside of which a change is not seen\n  close over it"):
        step(teacher, x)
    step(teacher, x)
    teacher.eval()
    assert [step(teacher, x).item() for _ in range(2)] == [1, 1]


@pytest.mark.uncaptured
@pytest.mark.parametrize("how", [copy.deepcopy, pickle.dumps])
@pytest.mark.parametrize("accumulate", [1, 2])
def test_a_step_is_not_copied(device, how, accumulate):
    """The step of the copy would train the original."""
    model = Body().to(device)
    config = cudagraphs.Config(runtime=RUNTIMES[device])
    step = cudagraphs.train_step(model, model.parameters(), optimizer=sgd(model), accumulate=accumulate, config=config)
    with pytest.raises(UsageError, match="cannot be copied\n  make another with train_step for the copy"):
        how(step)


def test_other_modules_in_this_process_may_be_unfinished(device):
    class Unfinished(nn.Module):
        def __init__(self, there):
            there.append(self)
            self.number = 3

    class Odd(nn.Linear):
        def parameters(self, rate):
            return rate

    there = [Odd(3, 3)]
    Unfinished(there)
    model = nn.Linear(3, 1).to(device)
    config = cudagraphs.Config(runtime=RUNTIMES[device])
    step = cudagraphs.train_step(lambda module, x: module(x).sum(), model.parameters(), config=config)
    for _ in range(3):
        step(model, torch.ones(2, 3, device=device))
    assert cudagraphs.stats().replays == 2


def test_a_scaler_that_is_turned_off(device):
    model = Body().to(device)
    scaler = torch.amp.GradScaler(device, enabled=False)
    step = cudagraphs.train_step(
        model,
        model.parameters(),
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        scaler=scaler,
        config=cudagraphs.Config(runtime=RUNTIMES[device]),
    )
    losses = [step(torch.ones(4, 3, device=device)).item() for _ in range(4)]
    assert losses == sorted(losses, reverse=True)


class Averaging(torch.optim.Optimizer):
    """Puts other tensors in the place of its state."""

    def __init__(self, params):
        super().__init__(params, {"lr": 0.1})

    @torch.no_grad()
    def step(self):
        for each in self.param_groups[0]["params"]:
            state = self.state[each]
            state["mean"] = state["mean"] * 0.9 + each.grad if "mean" in state else each.grad.clone()
            each.sub_(state["mean"], alpha=0.1)


@pytest.mark.uncaptured
def test_optimizers_that_replace_their_state(device):
    twins = Twins(device, lambda model: Averaging(model.parameters()))
    with pytest.warns(DynxWarning, match="the training step runs uncaptured: it changes mean itself"):
        twins.step(6)


@pytest.mark.filterwarnings("ignore:.*weight_norm.*:FutureWarning")
class Assigns(nn.Module):
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
@pytest.mark.filterwarnings("ignore:the training step runs uncaptured. it changes mean of a Assigns itself")
@pytest.mark.parametrize("assigns", [False, True], ids=["", "assigned"])
@pytest.mark.parametrize("name", ["loss", "hidden"])
def test_models_of_ordinary_objects(device, name, assigns):
    torch.manual_seed(0)
    trainers = [Trainer(nn.Sequential(nn.Linear(3, 3), Assigns(device) if assigns else nn.Dropout()).to(device))]
    trainers.append(copy.deepcopy(trainers[0]))
    mine, other = (getattr(each, name) for each in trainers)
    optimizers = [torch.optim.SGD(each.model.parameters(), lr=0.1) for each in trainers]
    config = cudagraphs.Config(runtime=RUNTIMES[device])
    step = cudagraphs.train_step(mine, trainers[0].model.parameters(), optimizer=optimizers[0], config=config)
    for number in range(8):
        x = torch.full((4, 3), float(number), device=device)
        for each in trainers:
            each.model.train(number < 5)
        torch.manual_seed(number)
        found = step(x)
        torch.manual_seed(number)
        optimizers[1].zero_grad()
        loss = other(x)
        loss.backward()
        optimizers[1].step()
        torch.testing.assert_close(found, loss.detach())
    torch.testing.assert_close(*(each.model.state_dict() for each in trainers))
    assert (cudagraphs.stats().replays == 0) == assigns


@pytest.mark.parametrize("norm", ["weight_norm", "spectral_norm"])
def test_modules_that_compute_their_weights(device, norm):
    def make(model):
        torch.manual_seed(1)
        getattr(torch.nn.utils, norm)(model.head)
        model.to(device)
        return sgd(model)

    Twins(device, make).step(6)
    assert cudagraphs.stats().replays == 5


@pytest.mark.parametrize("way", ["train_step", "graphed", "in place"])
def test_results_from_before_are_kept(device, way):
    """Their graphs lead to nodes of autograd that belong to another stream, for which a capture cannot wait."""
    model = Body().to(device)
    model.head.weight.is_special = True  # it is not replaced by another leaf then
    x = torch.ones(4, 3, device=device)
    before = model(x)
    config = cudagraphs.Config(runtime=RUNTIMES[device], gradients="in_place" if way == "in place" else "autograd")
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
        found = {name: each.grad.clone() for name, each in model.named_parameters()}
    assert cudagraphs.stats().replays > 0
    model.zero_grad()
    before.backward()
    torch.testing.assert_close({name: each.grad for name, each in model.named_parameters()}, found)


class Graphed(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, x):
        return self.model(x)


class Auxiliary(Body):
    def forward(self, x):
        hidden = self.body(x)
        self.shape, self.also = hidden.shape, hidden.abs().mean()
        return self.head(hidden).square().mean() + self.also


def test_losses_that_are_kept_on_a_module(device):
    torch.manual_seed(0)
    model = Auxiliary().to(device)
    config = cudagraphs.Config(runtime=RUNTIMES[device])
    step = cudagraphs.train_step(lambda module, x: module(x), model.parameters(), optimizer=sgd(model), config=config)
    for number in range(6):
        x = torch.full((4, 3), float(number), device=device)
        expected = model(x).detach()
        torch.testing.assert_close(step(model, x), expected)
    assert cudagraphs.stats().replays == 5


def test_parameters_that_are_somewhere_else(device):
    model = Body().to(device)
    model.other = nn.Parameter(torch.empty(3, device="meta"), requires_grad=False)
    model.register_buffer("adjacent", torch.eye(3).to_sparse().to(device))
    step = cudagraphs.train_step(
        model, model.parameters(), optimizer=sgd(model.body), config=cudagraphs.Config(runtime=RUNTIMES[device])
    )
    for _ in range(4):
        step(torch.ones(4, 3, device=device))
    assert cudagraphs.stats().replays == 3


@pytest.mark.parametrize("seed", range(6))
def test_parts_that_use_different_parameters(device, seed):
    chance = random.Random(seed)
    models = [nn.ModuleList([nn.Linear(3, 1), nn.Linear(3, 1)]).to(device)]
    models.append(copy.deepcopy(models[0]))
    optimizers = [sgd(each) for each in models]
    config = cudagraphs.Config(runtime=RUNTIMES[device])
    step = cudagraphs.train_step(
        lambda x, which: models[0][which](x).square().mean(),
        models[0].parameters(),
        optimizer=optimizers[0],
        accumulate=2,
        config=config,
    )
    for number in range(14):
        x, which = torch.randn(2, 3, device=device), chance.randrange(2)
        loss = models[1][which](x).square().mean()
        loss.backward()
        torch.testing.assert_close(step(x, which), loss.detach())
        if number % 2:
            optimizers[1].step()
            optimizers[1].zero_grad()
