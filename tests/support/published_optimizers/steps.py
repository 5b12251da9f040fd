"""Steps that call a base class, are replaced, decorated or bound, or read something outside of the optimizer."""

from __future__ import annotations

import functools
import os
import time
from types import SimpleNamespace

import torch
from torch.optim import Optimizer

from support.published_optimizers.kinds import Published, decayed, descend, each_step, nothing, plain, sgd, with_grads

SCALE_VARIABLE = "PUBLISHED_OPTIMIZERS_LR_SCALE"


class WarmAdamW(torch.optim.AdamW):
    """An AdamW that sets its learning rate from a count, then calls `super().step()`."""

    def __init__(self, params, lr=0.02, warmup=5, **options):
        super().__init__(params, lr=lr, **options)
        self.base_lr = lr
        self.warmup = warmup
        self.t = 0

    def step(self, closure=None):
        self.t += 1
        for group in self.param_groups:
            group["lr"] = self.base_lr * min(1.0, self.t / self.warmup)
        return super().step(closure)


def make_patched_on_instance(params):
    """Return SGD whose `step` was replaced on the instance by a function that counts in an attribute."""
    optimizer = sgd(params)
    original = optimizer.step
    optimizer.calls = 0

    def step_with_count(closure=None):
        optimizer.calls += 1
        for group in optimizer.param_groups:
            group["lr"] = 0.1 * decayed(optimizer.calls)
        return original(closure)

    optimizer.step = step_with_count
    return optimizer, nothing


def every(period):
    """Return a decorator of `step` that counts calls on itself, and halves the learning rate every `period` of them."""

    def decorate(step):
        @functools.wraps(step)
        def counted(self, *args, **kwargs):
            counted.calls += 1
            if counted.calls % period == 0:
                for group in self.param_groups:
                    group["lr"] /= 2
            return step(self, *args, **kwargs)

        counted.calls = 0
        return counted

    return decorate


def make_decorated(params):
    """Return SGD of a new class whose `step` is decorated."""

    class DecoratedSgd(torch.optim.SGD):
        counted_step = every(4)(torch.optim.SGD.step)

        def step(self, closure=None):
            return self.counted_step(closure)

    return DecoratedSgd(params, lr=0.1, momentum=0.9), nothing


def momentum_rule(p, lr, memory):
    """Update a parameter with a momentum that a memory counts and keeps."""
    memory["t"] += 1
    buffer = memory["buffers"].setdefault(id(p), torch.zeros_like(p))
    p.sub_(buffer.mul_(0.9).add_(p.grad) * (lr * decayed(memory["t"])))


class PartialRule(Optimizer):
    """Holds its rule as a partial with a memory of its own, which counts."""

    def __init__(self, params, lr=0.1):
        super().__init__(params, {"lr": lr})
        self.rule = functools.partial(momentum_rule, memory={"t": 0, "buffers": {}})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in with_grads(group):
                self.rule(p, group["lr"])


class ConfiguredSgd(Optimizer):
    """Reads its learning rate from a config object in each step, and writes the step there."""

    def __init__(self, params, config):
        super().__init__(params, {"lr": 1.0})
        self.config = config

    def step(self, closure=None):
        self.config.global_step += 1
        descend(self, self.config.optim.lr)


def make_configured(params):
    """Return an optimizer whose config the training loop changes after the fifth step."""
    config = SimpleNamespace(optim=SimpleNamespace(lr=0.1), global_step=0)

    def change(step):
        if step == 5:
            config.optim.lr = 0.03

    return ConfiguredSgd(params, config), each_step(change)


class EnvironmentSgd(Optimizer):
    """Reads a factor from an environment variable in each step."""

    def __init__(self, params, lr=0.1):
        super().__init__(params, {"lr": lr})

    def step(self, closure=None):
        descend(self, float(os.environ.get(SCALE_VARIABLE, "1.0")))


def make_environment(params):
    """Return an optimizer whose environment variable changes after the fourth step."""
    os.environ.pop(SCALE_VARIABLE, None)

    def change(step):
        if step == 4:
            os.environ[SCALE_VARIABLE] = "0.25"

    return EnvironmentSgd(params), each_step(change)


class TimedSgd(torch.optim.SGD):
    """Counts its steps and keeps how long each took; the time itself changes no weight."""

    def __init__(self, params, **options):
        super().__init__(params, **options)
        self.timed = 0
        self.seconds = []

    def step(self, closure=None):
        begun = time.perf_counter()
        loss = super().step(closure)
        self.seconds.append(time.perf_counter() - begun)
        self.timed += 1
        return loss


def make_hooked(params):
    """Return SGD with a hook after its step that counts in an attribute and lowers the learning rate."""
    optimizer = sgd(params)
    optimizer.hooked = 0

    def after_step(optimizer, args, kwargs):
        optimizer.hooked += 1
        optimizer.param_groups[0]["lr"] *= 0.9

    optimizer.register_step_post_hook(after_step)
    return optimizer, nothing


STEPS = (
    Published("super_step", plain(lambda params: WarmAdamW(params, capturable=params[0].is_cuda)), ("t", "param_groups.0.lr")),
    Published("super_step_counting_on_cpu", plain(WarmAdamW), ("t", "param_groups.0.lr")),
    Published("patched_on_instance", make_patched_on_instance, ("calls",)),
    Published("decorated", make_decorated, ("counted_step.calls", "param_groups.0.lr")),
    Published("partial_rule", plain(PartialRule), ("rule.keywords.memory.t",)),
    Published("config_object", make_configured, ("config.global_step",)),
    Published("environment_variable", make_environment),
    Published("timed", plain(lambda params: TimedSgd(params, lr=0.1, momentum=0.9)), ("timed",)),
    Published("hooked", make_hooked, ("hooked", "param_groups.0.lr")),
)
