"""Optimizers that keep a second copy of the weights: Lookahead, SWA, EMA, SAM, schedule-free."""

from __future__ import annotations

import math
from collections import OrderedDict, defaultdict

import torch
from torch.optim import Optimizer

from support.published_optimizers.kinds import Published, adamw, descend, each_step, nothing, plain, sgd, with_grads


class LookaheadCountingInGroups(Optimizer):
    """Lookahead as of torch-optimizer: shares the groups, counts in them, has a state of its own; no `super().__init__`."""

    def __init__(self, optimizer, k=5, alpha=0.5):
        self.optimizer = optimizer
        self.k = k
        self.alpha = alpha
        self.param_groups = optimizer.param_groups
        self.state = defaultdict(dict)
        self.fast_state = optimizer.state
        for group in self.param_groups:
            group["counter"] = 0
        self.defaults = {"k": k, "alpha": alpha, **optimizer.defaults}

    def update(self, group):
        for fast in group["params"]:
            state = self.state[fast]
            if "slow_param" not in state:
                state["slow_param"] = torch.clone(fast.data).detach()
            slow = state["slow_param"]
            fast.data.mul_(self.alpha).add_(slow, alpha=1.0 - self.alpha)
            slow.data.copy_(fast)

    def step(self, closure=None):
        loss = self.optimizer.step(closure)
        for group in self.param_groups:
            if group["counter"] == 0:
                self.update(group)
            group["counter"] = (group["counter"] + 1) % self.k
        return loss

    def zero_grad(self, set_to_none=True):
        self.optimizer.zero_grad(set_to_none)


class LookaheadWithOptionsInGroups(Optimizer):
    """Lookahead as of timm: its options and steps are in the groups, its slow weights in the inner optimizer's state."""

    def __init__(self, base_optimizer, alpha=0.5, k=3):
        self._optimizer_step_pre_hooks = OrderedDict()
        self._optimizer_step_post_hooks = OrderedDict()
        defaults = {"lookahead_alpha": alpha, "lookahead_k": k, "lookahead_step": 0}
        self._base_optimizer = base_optimizer
        self.param_groups = base_optimizer.param_groups
        self.defaults = base_optimizer.defaults
        self.defaults.update(defaults)
        self.state = defaultdict(dict)
        for group in self.param_groups:
            for name, default in defaults.items():
                group.setdefault(name, default)

    @torch.no_grad()
    def step(self, closure=None):
        loss = self._base_optimizer.step(closure)
        for group in self._base_optimizer.param_groups:
            group["lookahead_step"] += 1
            if group["lookahead_step"] % group["lookahead_k"] == 0:
                for p in with_grads(group):
                    state = self._base_optimizer.state[p]
                    if "slow_buffer" not in state:
                        state["slow_buffer"] = p.detach().clone()
                    state["slow_buffer"].lerp_(p, group["lookahead_alpha"])
                    p.copy_(state["slow_buffer"])
        return loss

    def zero_grad(self, set_to_none=True):
        self._base_optimizer.zero_grad(set_to_none)


class LookaheadWithMomentumReset(Optimizer):
    """Lookahead as of pytorch-optimizer: groups through a property; replaces the inner momentum by zeros every k steps."""

    def __init__(self, optimizer, k=4, alpha=0.5):
        self.optimizer = optimizer
        self._optimizer_step_pre_hooks = OrderedDict()
        self._optimizer_step_post_hooks = OrderedDict()
        self._patch_step_function()
        self.k = k
        self.alpha = alpha
        self.counter = 0
        self.state = defaultdict(dict)
        for group in self.param_groups:
            for p in group["params"]:
                self.state[p]["slow_params"] = p.detach().clone()
        self.defaults = {"lookahead_k": k, **optimizer.defaults}

    @property
    def param_groups(self):
        return self.optimizer.param_groups

    @torch.no_grad()
    def step(self, closure=None):
        loss = self.optimizer.step(closure)
        self.counter += 1
        if self.counter >= self.k:
            self.counter = 0
            for group in self.param_groups:
                for p in with_grads(group):
                    slow = self.state[p]["slow_params"]
                    p.mul_(self.alpha).add_(slow, alpha=1.0 - self.alpha)
                    slow.copy_(p)
                    self.optimizer.state[p]["momentum_buffer"] = torch.zeros_like(p)
        return loss

    def zero_grad(self, set_to_none=True):
        self.optimizer.zero_grad(set_to_none=set_to_none)


class Swa(Optimizer):
    """SWA as of torchcontrib: counts and averages per group from the fourth step on, and switches the learning rate."""

    def __init__(self, optimizer, swa_start=4, swa_freq=2, swa_lr=0.02):
        self.optimizer = optimizer
        self.swa_start = swa_start
        self.swa_freq = swa_freq
        self.swa_lr = swa_lr
        self.param_groups = optimizer.param_groups
        self.defaults = optimizer.defaults
        self.state = defaultdict(dict)
        self.opt_state = optimizer.state
        for group in self.param_groups:
            group["n_avg"] = 0
            group["step_counter"] = 0

    def step(self, closure=None):
        for group in self.param_groups:
            if group["step_counter"] >= self.swa_start:
                group["lr"] = self.swa_lr
        loss = self.optimizer.step(closure)
        for group in self.param_groups:
            group["step_counter"] += 1
            past_start = group["step_counter"] - self.swa_start
            if past_start > 0 and past_start % self.swa_freq == 0:
                for p in group["params"]:
                    state = self.state[p]
                    if "swa_buffer" not in state:
                        state["swa_buffer"] = torch.zeros_like(p.data)
                    state["swa_buffer"].add_((p.data - state["swa_buffer"]) / float(group["n_avg"] + 1))
                group["n_avg"] += 1
        return loss

    def swap_swa_sgd(self):
        for group in self.param_groups:
            for p in group["params"]:
                if "swa_buffer" in self.state[p]:
                    p.data, self.state[p]["swa_buffer"] = self.state[p]["swa_buffer"], p.data

    def zero_grad(self, set_to_none=True):
        self.optimizer.zero_grad(set_to_none)


class EmaInStep(torch.optim.SGD):
    """Keeps shadow weights in a list on itself, whose decay rises with a count; pulls the weights to them every 4 steps."""

    def __init__(self, params, lr=0.1, decay=0.9):
        super().__init__(params, lr=lr)
        self.decay = decay
        self.num_updates = 0
        self.shadow_params = [p.clone().detach() for p in self.param_groups[0]["params"]]

    @torch.no_grad()
    def step(self, closure=None):
        loss = super().step(closure)
        self.num_updates += 1
        decay = min(self.decay, (1 + self.num_updates) / (10 + self.num_updates))
        for shadow, p in zip(self.shadow_params, self.param_groups[0]["params"], strict=True):
            shadow.sub_((1.0 - decay) * (shadow - p))
            if self.num_updates % 4 == 0:
                p.lerp_(shadow, 0.5)
        return loss


class AlternatingSam(Optimizer):
    """SAM without a closure: one call perturbs the weights, the next takes that back and steps the inner optimizer."""

    def __init__(self, params, base_optimizer, rho=0.05):
        super().__init__(params, {"rho": rho})
        self.base_optimizer = base_optimizer(self.param_groups)
        self.param_groups = self.base_optimizer.param_groups
        self.state = self.base_optimizer.state
        self.perturbed = False
        self.updates = 0

    @torch.no_grad()
    def first_step(self):
        norms = [p.grad.norm(p=2) for group in self.param_groups for p in with_grads(group)]
        norm = torch.norm(torch.stack(norms), p=2)
        for group in self.param_groups:
            for p in with_grads(group):
                self.state[p]["e_w"] = p.grad * (group["rho"] / (norm + 1e-12))
                p.add_(self.state[p]["e_w"])

    @torch.no_grad()
    def second_step(self):
        for group in self.param_groups:
            for p in with_grads(group):
                p.sub_(self.state[p].pop("e_w"))
        self.base_optimizer.step()
        self.updates += 1

    def step(self, closure=None):
        if self.perturbed:
            self.second_step()
        else:
            self.first_step()
        self.perturbed = not self.perturbed


class MomentumSam(Optimizer):
    """SAM along the momentum: weights stay perturbed between steps, in tensors only."""

    def __init__(self, params, lr=0.05, momentum=0.9, rho=0.05):
        super().__init__(params, {"lr": lr, "momentum": momentum, "rho": rho})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in with_grads(group):
                state = self.state[p]
                if not state:
                    state["momentum_buffer"] = torch.zeros_like(p)
                    state["offset"] = torch.zeros_like(p)
                p.sub_(state["offset"])
                buffer = state["momentum_buffer"].mul_(group["momentum"]).add_(p.grad)
                p.add_(buffer, alpha=-group["lr"])
                state["offset"] = buffer * (-group["rho"] / (buffer.norm() + 1e-12))
                p.add_(state["offset"])


class ScheduleFree(Optimizer):
    """Schedule-free SGD or AdamW: count, flag of training, largest rate and sum of weights are numbers in the group."""

    def __init__(self, params, lr=0.2, momentum=0.9, beta2=None, warmup_steps=3, r=0.5):
        options = {"lr": lr, "momentum": momentum, "beta2": beta2, "warmup_steps": warmup_steps, "r": r}
        super().__init__(
            params, {**options, "k": 0, "train_mode": False, "weight_sum": 0.0, "lr_max": -1.0, "scheduled_lr": 0.0}
        )

    @torch.no_grad()
    def move(self, training):
        for group in self.param_groups:
            if group["train_mode"] is not training:
                weight = 1 - group["momentum"] if training else 1 - 1 / group["momentum"]
                for p in group["params"]:
                    if "z" in self.state[p]:
                        p.lerp_(end=self.state[p]["z"], weight=weight)
                group["train_mode"] = training

    def train(self):
        self.move(True)

    def eval(self):
        self.move(False)

    @torch.no_grad()
    def step(self, closure=None):
        if not self.param_groups[0]["train_mode"]:
            raise RuntimeError("call .train() before .step()")
        for group in self.param_groups:
            k = group["k"]
            lr = group["lr"] * min(1.0, (k + 1) / group["warmup_steps"])
            if group["beta2"] is not None:
                lr *= math.sqrt(1 - group["beta2"] ** (k + 1))
            group["scheduled_lr"] = lr
            group["lr_max"] = max(lr, group["lr_max"])
            weight = (k + 1) ** group["r"] * group["lr_max"] ** 2
            group["weight_sum"] += weight
            share = weight / group["weight_sum"] if group["weight_sum"] else 0.0
            for p in with_grads(group):
                state = self.state[p]
                if "z" not in state:
                    state["z"] = p.detach().clone()
                    state["exp_avg_sq"] = torch.zeros_like(p)
                grad = p.grad
                if group["beta2"] is not None:
                    state["exp_avg_sq"].mul_(group["beta2"]).addcmul_(grad, grad, value=1 - group["beta2"])
                    grad = grad / state["exp_avg_sq"].sqrt().add_(1e-8)
                p.lerp_(end=state["z"], weight=share)
                p.add_(grad, alpha=lr * (group["momentum"] * (1 - share) - 1))
                state["z"].sub_(grad, alpha=lr)
            group["k"] = k + 1


def make_schedule_free(params):
    """Return schedule-free SGD in training."""
    optimizer = ScheduleFree(params)
    optimizer.train()
    return optimizer, nothing


def make_schedule_free_with_evaluation(params):
    """Return schedule-free AdamW that is set to evaluation and back after every fourth step."""
    optimizer = ScheduleFree(params, lr=0.05, beta2=0.99)
    optimizer.train()

    def evaluate(step):
        if step % 4 == 0:
            optimizer.eval()
            optimizer.train()

    return optimizer, each_step(evaluate)


def make_schedule_free_changed(params):
    """Return schedule-free SGD whose learning rate is halved during an evaluation after the third step."""
    optimizer = ScheduleFree(params, warmup_steps=6)
    optimizer.train()

    def evaluate(step):
        if step == 3:
            optimizer.eval()
            optimizer.param_groups[0]["lr"] *= 0.5
            optimizer.train()

    return optimizer, each_step(evaluate)


class SnapshotsInList(Optimizer):
    """Returns to the mean of its last three weights, kept in a list of tensors, in every third step."""

    def __init__(self, params, lr=0.1):
        super().__init__(params, {"lr": lr})
        self.snapshots = []

    @torch.no_grad()
    def step(self, closure=None):
        descend(self)
        params = [p for group in self.param_groups for p in group["params"]]
        self.snapshots.append([p.detach().clone() for p in params])
        if len(self.snapshots) == 3:
            for p, *copies in zip(params, *self.snapshots, strict=True):
                p.copy_(sum(copies) / 3)
            self.snapshots.clear()


GROUP_OF_SCHEDULE_FREE = ("param_groups.0.k", "param_groups.0.weight_sum", "param_groups.0.lr_max", "param_groups.0.train_mode")

AVERAGING = (
    Published(
        "lookahead_of_torch_optimizer",
        plain(lambda params: LookaheadCountingInGroups(sgd(params))),
        ("param_groups.0.counter",),
    ),
    Published(
        "lookahead_of_timm",
        plain(lambda params: LookaheadWithOptionsInGroups(adamw(params))),
        ("param_groups.0.lookahead_step",),
    ),
    Published("lookahead_with_momentum_reset", plain(lambda params: LookaheadWithMomentumReset(sgd(params))), ("counter",)),
    Published(
        "swa_in_step",
        plain(lambda params: Swa(sgd(params))),
        ("param_groups.0.n_avg", "param_groups.0.step_counter", "param_groups.0.lr"),
    ),
    Published("ema_in_step", plain(EmaInStep), ("num_updates",)),
    Published("sam_alternating", plain(lambda params: AlternatingSam(params, sgd)), ("perturbed", "updates")),
    Published("sam_along_momentum", plain(MomentumSam)),
    Published("schedule_free_sgd", make_schedule_free, GROUP_OF_SCHEDULE_FREE),
    Published("schedule_free_adamw_evaluated", make_schedule_free_with_evaluation, GROUP_OF_SCHEDULE_FREE),
    Published("schedule_free_changed_while_evaluated", make_schedule_free_changed, GROUP_OF_SCHEDULE_FREE),
    Published("snapshots_in_list", plain(SnapshotsInList)),
)
