"""A model that `cudagraphs.train_step` trains beside a copy that is trained eagerly, on the same batches."""

from __future__ import annotations

import copy

import torch

from dynx import cudagraphs
from support.agreement import assert_same_grads
from support.configs import config_for


def sgd(model, **options):
    """Return SGD over all parameters of a model."""
    return torch.optim.SGD(model.parameters(), lr=0.1, **options)


class TwinTraining:
    """`captured` is trained by the recorded step, `eager` without it; each has an optimizer and a scaler of its own."""

    def __init__(self, device, model, make_optimizer=None, *, loss=None, scaler=False, clip=None, accumulate=1, **options):
        """Make the step of `model`.

        Args:
            device: where the model is, "cpu" or "cuda".
            model: returns the loss, unless `loss` is given.
            make_optimizer: takes a model; it may change the model, as each of the two is given to it.
            loss: takes a model and a batch, and returns a scalar.
            scaler: whether a GradScaler scales the loss.
            clip: the largest norm of all gradients.
            accumulate: how many calls make a step.
            options: those of the config.
        """
        self.device, self.clip, self.accumulate, self.calls = device, clip, accumulate, 0
        self.captured, self.eager = self.models = (model, copy.deepcopy(model))
        self.loss = loss or (lambda model, x: model(x))
        self.optimizers = [make_optimizer and make_optimizer(twin) for twin in self.models]
        self.scalers = [torch.amp.GradScaler(device, init_scale=8.0) if scaler else None for _ in self.models]
        self.step = cudagraphs.train_step(
            model if loss is None else lambda x: loss(model, x),
            model.parameters(),
            optimizer=self.optimizers[0],
            scaler=self.scalers[0],
            clip_grad_norm=clip,
            accumulate=accumulate,
            config=config_for(device, **options),
        )

    def change(self, change):
        """Call `change(model, optimizer)` for both models."""
        for model, optimizer in zip(self.models, self.optimizers, strict=True):
            change(model, optimizer)

    def eager_step(self, x):
        """Do what the recorded step does, with eager torch; return the loss."""
        optimizer, scaler = self.optimizers[1], self.scalers[1]
        if self.calls % self.accumulate == 0:
            self.eager.zero_grad()
        self.calls += 1
        loss = self.loss(self.eager, x)
        (loss if scaler is None else scaler.scale(loss)).backward()
        if self.calls % self.accumulate or optimizer is None:
            return loss.detach()
        if self.clip is not None:
            if scaler is not None:
                scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(self.eager.parameters(), self.clip)
        if scaler is None:
            optimizer.step()
        else:
            scaler.step(optimizer)
            scaler.update()
        return loss.detach()

    def assert_steps_agree(self, steps=5, *, shape=(3, 4)):
        """Train both on random batches; after each step losses, parameters, buffers and gradients have to be equal."""
        for _ in range(steps):
            x = torch.randn(shape, device=self.device)
            torch.testing.assert_close(self.step(x), self.eager_step(x))
            torch.testing.assert_close(self.captured.state_dict(), self.eager.state_dict())
            assert_same_grads(self.captured, self.eager)
