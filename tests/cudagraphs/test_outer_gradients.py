"""Gradients that a training step computes for tensors besides its parameters: those of the loss's own, arguments, others."""

from __future__ import annotations

import pytest
import torch
from support.configs import config_for
from support.twin_training import TwinTraining, sgd
from torch import nn

from dynx import cudagraphs
from dynx.errors import UsageError


def critic(device):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1)).to(device)


def gradient_penalty(model, x):
    mixed = (x * 0.3 + x.flip(0) * 0.7).detach().requires_grad_()
    score = model(mixed)
    (gradient,) = torch.autograd.grad(score.sum(), mixed, create_graph=True)
    return score.mean() + (gradient.norm(dim=1) - 1).square().mean()


def adversarial(model, x):
    noise = torch.zeros_like(x, requires_grad=True)
    (gradient,) = torch.autograd.grad(model(x + noise).square().mean(), noise)
    return model(x + gradient.sign()).square().mean()


@pytest.mark.parametrize("loss", [gradient_penalty, adversarial])
def test_leaf_tensors_that_the_loss_makes_match_eager(device, loss):
    twins = TwinTraining(device, critic(device), sgd, loss=loss)
    twins.assert_steps_agree(5, shape=(4, 3))


@pytest.mark.uncaptured
def test_leaf_tensor_that_the_loss_keeps_raises_and_has_its_gradient_as_before(device):
    model, kept = critic(device), []

    def loss(x):
        kept.append(x.detach().requires_grad_())
        return model(kept[-1]).square().mean()

    step = cudagraphs.train_step(loss, model.parameters(), config=config_for(device))
    with pytest.raises(UsageError, match=r"for a tensor of size \(4, 3\) that is not among the parameters"):
        step(torch.ones(4, 3, device=device))
    assert kept[0].grad is None


@pytest.mark.uncaptured
def test_parameters_as_arguments_raise(device):
    """A replay would read a copy of the parameter, which gets no gradient."""
    model, weight = critic(device), nn.Parameter(torch.ones(3, device=device))
    params = [*model.parameters(), weight]
    step = cudagraphs.train_step(lambda x, options: model(x * options["w"]).mean(), params, config=config_for(device))
    x = torch.ones(4, 3, device=device)
    with pytest.raises(UsageError, match=r"argument options\['w'\] of the training step is a parameter that it trains"):
        step(x, {"w": weight})
    assert weight.grad is None


@pytest.mark.uncaptured
def test_arguments_that_were_computed_from_parameters_raise(device):
    model, encoder = critic(device), nn.Linear(3, 3).to(device)
    params = [*model.parameters(), *encoder.parameters()]
    step = cudagraphs.train_step(lambda x: model(x).mean(), params, config=config_for(device))
    with pytest.raises(
        UsageError, match="argument x of the training step was computed from tensors that would get no gradient"
    ):
        step(encoder(torch.ones(4, 3, device=device)))


def test_frozen_parameters_as_arguments_match_eager(device):
    weight = nn.Parameter(torch.full((3,), 2.0, device=device), requires_grad=False)
    twins = TwinTraining(device, critic(device), sgd, loss=lambda model, x: model(x * weight).mean())
    twins.assert_steps_agree(4, shape=(4, 3))
