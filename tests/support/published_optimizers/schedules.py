"""Schedulers inside of `step` and after it, and training loops that change groups or state between steps."""

from __future__ import annotations

import torch
from torch.optim.lr_scheduler import (
    CosineAnnealingLR,
    CosineAnnealingWarmRestarts,
    LambdaLR,
    LinearLR,
    OneCycleLR,
    SequentialLR,
)

from support.published_optimizers.kinds import Published, adamw, decayed, each_step, nothing, sgd


class SelfScheduledSgd(torch.optim.SGD):
    """Steps a scheduler of its own at the end of each step."""

    def __init__(self, params, lr=0.1, momentum=0.9):
        super().__init__(params, lr=lr, momentum=momentum)
        self.scheduler = LambdaLR(self, decayed)

    def step(self, closure=None):
        loss = super().step(closure)
        self.scheduler.step()
        return loss


class NoamOpt:
    """The wrapper of the Annotated Transformer: no subclass; a count that sets the learning rate before each step."""

    def __init__(self, model_size, factor, warmup, optimizer):
        self.optimizer = optimizer
        self._step = 0
        self._rate = 0
        self.model_size = model_size
        self.factor = factor
        self.warmup = warmup

    @property
    def param_groups(self):
        return self.optimizer.param_groups

    @property
    def state(self):
        return self.optimizer.state

    def rate(self, step):
        return self.factor * self.model_size**-0.5 * min(step**-0.5, step * self.warmup**-1.5)

    def zero_grad(self, set_to_none=True):
        self.optimizer.zero_grad(set_to_none)

    def step(self, closure=None):
        self._step += 1
        self._rate = self.rate(self._step)
        for group in self.optimizer.param_groups:
            group["lr"] = self._rate
        self.optimizer.step()


class LinearWarmupThenCosine:
    """A scheduler of no base class, which sets the learning rate as a number and the count on itself."""

    def __init__(self, optimizer, max_lr=0.1, warmup_steps=4):
        self.optimizer = optimizer
        self.max_lr = max_lr
        self.warmup_steps = warmup_steps
        self.step_t = 0
        self.step()

    def step(self):
        self.step_t += 1
        past = max(0, self.step_t - self.warmup_steps)
        value = self.max_lr * min(1.0, self.step_t / self.warmup_steps) * 0.9**past
        for group in self.optimizer.param_groups:
            group["lr"] = value


class Plateau:
    """Halves the learning rate when the size of the weights, read from the device, has not fallen for two steps."""

    def __init__(self, optimizer, factor=0.5, patience=1):
        self.optimizer = optimizer
        self.factor = factor
        self.patience = patience
        self.best = float("inf")
        self.bad = 0

    def step(self):
        size = sum(p.detach().square().sum().item() for group in self.optimizer.param_groups for p in group["params"])
        self.bad = 0 if size < self.best * 0.9 else self.bad + 1
        self.best = min(self.best, size)
        if self.bad > self.patience:
            self.bad = 0
            for group in self.optimizer.param_groups:
                group["lr"] *= self.factor


def scheduled(build, scheduler, **options):
    """Return a `make` of an optimizer and a scheduler of it that steps after each step."""

    def make(params):
        optimizer = build(params)
        return optimizer, scheduler(optimizer, **options).step

    return make


def warm_then_cosine(optimizer):
    """Return torch's warm-up followed by its cosine, which change at the fourth step."""
    parts = [LinearLR(optimizer, 0.2, total_iters=4), CosineAnnealingLR(optimizer, 40)]
    return SequentialLR(optimizer, parts, milestones=[4])


def changed(build, change):
    """Return a `make` of an optimizer on which `change` is called with the number of each step that is over."""

    def make(params):
        optimizer = build(params)
        return optimizer, each_step(lambda step: change(optimizer, step))

    return make


def set_rate(optimizer, step):
    """Set the learning rate."""
    for group in optimizer.param_groups:
        group["lr"] = 0.1 * decayed(step)


def fill_rate(optimizer, step):
    """Fill the tensor of the learning rate."""
    for group in optimizer.param_groups:
        group["lr"].fill_(0.02 * decayed(step))


def replace_rate(optimizer, step):
    """Put a new tensor in the place of the learning rate."""
    for group in optimizer.param_groups:
        group["lr"] = torch.tensor(0.02 * decayed(step), device=group["lr"].device)


def set_betas(optimizer, step):
    """Change the momenta, as one-cycle schedules do."""
    for group in optimizer.param_groups:
        group["betas"] = (max(0.8, 0.95 - 0.03 * step), group["betas"][1])


def set_decay_once(optimizer, step):
    """Change the weight decay after the fourth step, and nothing else at any other."""
    if step == 4:
        optimizer.param_groups[0]["weight_decay"] = 0.5


def switch_nesterov(optimizer, step):
    """Turn Nesterov's momentum on after the sixth step."""
    if step == 6:
        for group in optimizer.param_groups:
            group["nesterov"] = True


def resume(optimizer, step):
    """Load the optimizer's own state after the sixth step, which replaces its tensors and groups by equal ones."""
    if step == 6:
        optimizer.load_state_dict(optimizer.state_dict())


def forget(optimizer, step):
    """Clear the state after the sixth step, as a warm restart does."""
    if step == 6:
        optimizer.state.clear()


def make_unfreezing(params):
    """Return SGD that gets the last parameter as a further group after the fifth step."""
    optimizer = sgd(params[:-1])

    def unfreeze(step):
        if step == 5:
            optimizer.add_param_group({"params": [params[-1]], "lr": 0.05})

    return optimizer, each_step(unfreeze)


def make_noam(params):
    """Return AdamW in the wrapper of the Annotated Transformer."""
    return NoamOpt(4, 0.1, 4, adamw(params, betas=(0.9, 0.98), eps=1e-9)), nothing


def make_self_scheduled(params):
    """Return SGD that steps its own scheduler."""
    return SelfScheduledSgd(params), nothing


def make_tensor_rate(params):
    """Return AdamW with its learning rate as a tensor on the device."""
    return adamw(params, lr=torch.tensor(0.02, device=params[0].device))


RATE = ("param_groups.0.lr",)
FIRST_BETA = ("param_groups.0.betas.0",)
ONE_CYCLE = {"max_lr": 0.05, "total_steps": 100, "pct_start": 0.08}
RESTARTS = {"T_0": 3, "T_mult": 2}

SCHEDULES = (
    Published("scheduler_inside_step", make_self_scheduled, ("scheduler.last_epoch", *RATE)),
    Published("noam_wrapper", make_noam, ("_step", "_rate")),
    Published("lambda_lr", scheduled(sgd, LambdaLR, lr_lambda=decayed), RATE),
    Published("lambda_lr_of_tensor", scheduled(make_tensor_rate, LambdaLR, lr_lambda=decayed), RATE),
    Published("one_cycle_lr", scheduled(adamw, OneCycleLR, **ONE_CYCLE), (*RATE, *FIRST_BETA)),
    Published("cosine_warm_restarts", scheduled(sgd, CosineAnnealingWarmRestarts, **RESTARTS), RATE),
    Published("warmup_then_cosine", scheduled(adamw, warm_then_cosine), RATE),
    Published("warmup_of_no_base_class", scheduled(sgd, LinearWarmupThenCosine), RATE),
    Published("plateau", scheduled(sgd, Plateau), RATE),
    Published("rate_set_as_number", changed(sgd, set_rate), RATE),
    Published("rate_tensor_filled", changed(make_tensor_rate, fill_rate), RATE),
    Published("rate_tensor_replaced", changed(make_tensor_rate, replace_rate), RATE),
    Published("betas_changed", changed(adamw, set_betas), FIRST_BETA),
    Published("weight_decay_changed_once", changed(adamw, set_decay_once), ("param_groups.0.weight_decay",)),
    Published("nesterov_switched_on", changed(sgd, switch_nesterov)),
    Published("state_loaded_again", changed(adamw, resume)),
    Published("state_cleared", changed(sgd, forget)),
    Published("group_added", make_unfreezing),
)
