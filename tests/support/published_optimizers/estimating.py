"""Optimizers that estimate or schedule something of their own: the distance, a norm, momentum, decay, history, noise."""

from __future__ import annotations

import math
import random
from collections import deque

import torch
from torch.optim import Optimizer
from torch.optim.lr_scheduler import CosineAnnealingLR

from support.published_optimizers.kinds import Published, descend, moments, nothing, plain, with_grads


class Prodigy(Optimizer):
    """Prodigy as published: its estimates are Python floats in the groups, read from tensors with `.item()`."""

    def __init__(self, params, lr=1.0, betas=(0.9, 0.99), d0=1e-2):
        estimates = {"d": d0, "d0": d0, "d_max": d0, "d_numerator": 0.0, "k": 0}
        super().__init__(params, {"lr": lr, "betas": betas, "eps": 1e-8, **estimates})

    def step(self, closure=None):
        first = self.param_groups[0]
        beta1, beta2 = first["betas"]
        beta3 = math.sqrt(beta2)
        d, d0 = first["d"], first["d0"]
        dlr = d * first["lr"]
        numerator, denominator = first["d_numerator"] * beta3, 0.0
        for group in self.param_groups:
            for p in with_grads(group):
                grad, state = p.grad.data, self.state[p]
                if "step" not in state:
                    state["step"] = 0
                    state["p0"] = p.detach().clone()
                s, exp_avg, exp_avg_sq = moments(state, p.data, "s", "exp_avg", "exp_avg_sq")
                numerator += (d / d0) * dlr * torch.dot(grad.flatten(), (state["p0"] - p.data).flatten()).item()
                exp_avg.mul_(beta1).add_(grad, alpha=d * (1 - beta1))
                exp_avg_sq.mul_(beta2).addcmul_(grad, grad, value=d * d * (1 - beta2))
                s.mul_(beta3).add_(grad, alpha=(d / d0) * dlr)
                denominator += s.abs().sum().item()
        if denominator == 0:
            return
        d_hat = numerator / denominator
        if d == d0:
            d = max(d, d_hat)
        for group in self.param_groups:
            group["d_numerator"] = numerator
            group["d_max"] = max(group["d_max"], d_hat)
            group["d"] = min(group["d_max"], max(d, d_hat))
            for p in with_grads(group):
                state = self.state[p]
                state["step"] += 1
                p.data.addcdiv_(state["exp_avg"], state["exp_avg_sq"].sqrt().add_(group["d"] * group["eps"]), value=-dlr)
            group["k"] += 1


class ProdigyInTensors(Optimizer):
    """Prodigy without reading: its estimates are tensors in the group, in place or new ones in each step; no count."""

    def __init__(self, params, lr=1.0, d0=1e-2, in_place=True):
        super().__init__(params, {"lr": lr, "betas": (0.9, 0.99), "d0": d0})
        self.in_place = in_place
        for group in self.param_groups:
            group["d"] = torch.tensor(d0, device=group["params"][0].device)
            group["d_numerator"] = torch.zeros_like(group["d"])

    def put(self, group, name, value):
        if self.in_place:
            group[name].copy_(value)
        else:
            group[name] = value

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            d, dlr = group["d"].clone(), group["d"] * group["lr"]
            numerator, denominator = group["d_numerator"] * beta2, torch.zeros_like(d)
            for p in with_grads(group):
                state = self.state[p]
                if "p0" not in state:
                    state["p0"] = p.detach().clone()
                s, exp_avg, exp_avg_sq = moments(state, p, "s", "exp_avg", "exp_avg_sq")
                numerator = numerator + (d / group["d0"]) * dlr * (p.grad * (state["p0"] - p)).sum()
                exp_avg.mul_(beta1).add_(p.grad * d * (1 - beta1))
                exp_avg_sq.mul_(beta2).add_((p.grad * d).square() * (1 - beta2))
                s.mul_(beta2).add_(p.grad * (d / group["d0"]) * dlr)
                denominator = denominator + s.abs().sum()
            self.put(group, "d_numerator", numerator)
            self.put(group, "d", torch.maximum(d, numerator / (denominator + 1e-12)))
            for p in with_grads(group):
                p.sub_(dlr * self.state[p]["exp_avg"] / (self.state[p]["exp_avg_sq"].sqrt() + group["d"] * 1e-8))


class DAdaptSgd(Optimizer):
    """D-Adaptation: the norm of the first gradient is read in the first step, later ones grow the estimate."""

    def __init__(self, params, lr=1.0, d0=1e-2, growth_rate=1.5):
        estimates = {"d": d0, "k": 0, "numerator_weighted": 0.0, "growth_rate": growth_rate}
        super().__init__(params, {"lr": lr, **estimates})

    @torch.no_grad()
    def step(self, closure=None):
        group = self.param_groups[0]
        if group["k"] == 0:
            group["g0_norm"] = math.sqrt(sum((p.grad * p.grad).sum().item() for p in with_grads(group)))
        dlr = group["d"] * group["lr"] / group["g0_norm"]
        square = 0.0
        for p in with_grads(group):
            state = self.state[p]
            if "x0" not in state:
                state["x0"] = p.detach().clone()
            (s,) = moments(state, p, "s")
            group["numerator_weighted"] += dlr * torch.dot(p.grad.flatten(), s.flatten()).item()
            s.add_(p.grad, alpha=dlr)
            square += (s * s).sum().item()
        if square:
            d_hat = 2 * group["numerator_weighted"] / math.sqrt(square)
            group["d"] = max(group["d"], min(d_hat, group["d"] * group["growth_rate"]))
        for p in with_grads(group):
            p.mul_(0.5).add_(self.state[p]["x0"] - self.state[p]["s"], alpha=0.5)
        group["k"] += 1


class SgdWithMomentumWarmup(Optimizer):
    """SGD whose momentum rises with a count until the ninth step, and stays from there on while the count goes on."""

    def __init__(self, params, lr=0.05):
        super().__init__(params, {"lr": lr, "momentum": 0.5})
        self.state["k"] = 0

    @torch.no_grad()
    def step(self, closure=None):
        self.state["k"] += 1
        for group in self.param_groups:
            group["momentum"] = min(0.95, 0.5 + 0.05 * self.state["k"])
            for p in with_grads(group):
                (buffer,) = moments(self.state[p], p, "momentum_buffer")
                p.add_(buffer.mul_(group["momentum"]).add_(p.grad), alpha=-group["lr"])


class DecayOfWeightDecay(torch.optim.SGD):
    """SGD that multiplies its own weight decay in each group after each step."""

    def __init__(self, params, lr=0.1, weight_decay=0.5):
        super().__init__(params, lr=lr, weight_decay=weight_decay)

    def step(self, closure=None):
        loss = super().step(closure)
        for group in self.param_groups:
            group["weight_decay"] *= 0.7
        return loss


class AdaShift(Optimizer):
    """AdaShift: a queue of gradients in each parameter's state, which is full after 4 steps."""

    def __init__(self, params, lr=0.05, keep_num=4):
        super().__init__(params, {"lr": lr, "keep_num": keep_num, "eps": 1e-8})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in with_grads(group):
                state = self.state[p]
                if len(state) == 0:
                    state["step"] = 0
                    state["grad_queue"] = deque(maxlen=group["keep_num"])
                (exp_avg_sq,) = moments(state, p, "exp_avg_sq")
                state["step"] += 1
                state["grad_queue"].append(p.grad.clone())
                if len(state["grad_queue"]) == group["keep_num"]:
                    oldest = state["grad_queue"][0]
                    exp_avg_sq.mul_(0.9).addcmul_(oldest, oldest, value=0.1)
                    mean = sum(state["grad_queue"]) / group["keep_num"]
                    denom = (exp_avg_sq / (1 - 0.9 ** (state["step"] - group["keep_num"] + 1))).sqrt_()
                    p.addcdiv_(mean, denom.add_(group["eps"]), value=-group["lr"])


class SwappedMomenta(Optimizer):
    """Positive-negative momentum: swaps the two tensors of each parameter's state after each step; no count."""

    def __init__(self, params, lr=0.05):
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in with_grads(group):
                state = self.state[p]
                positive, negative = moments(state, p, "positive", "negative")
                positive.mul_(0.81).add_(p.grad)
                p.sub_((2 * positive - negative) * (group["lr"] / math.sqrt(5)))
                state["positive"], state["negative"] = negative, positive


class BarzilaiBorwein(Optimizer):
    """Barzilai-Borwein: a step size read from differences, a Python float in the group; previous values on itself."""

    def __init__(self, params, lr=0.05):
        super().__init__(params, {"lr": lr})
        self.previous = None

    @torch.no_grad()
    def step(self, closure=None):
        group = self.param_groups[0]
        params = with_grads(group)
        current = [(p.clone(), p.grad.clone()) for p in params]
        if self.previous is not None:
            pairs = list(zip(current, self.previous, strict=True))
            moved = sum((now[0] - then[0]).square().sum() for now, then in pairs).item()
            turned = sum(((now[0] - then[0]) * (now[1] - then[1])).sum() for now, then in pairs).item()
            group["lr"] = min(0.3, max(0.01, moved / max(turned, 1e-12)))
        self.previous = current
        descend(self)


class Swats(Optimizer):
    """SWATS-like: Adam until a phase, a string in the group, becomes SGD after the fifth step."""

    def __init__(self, params, lr=0.02):
        super().__init__(params, {"lr": lr, "phase": "ADAM", "step": 0})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            group["step"] += 1
            for p in with_grads(group):
                if group["phase"] == "SGD":
                    (buffer,) = moments(self.state[p], p, "momentum_buffer")
                    p.add_(buffer.mul_(0.9).add_(p.grad), alpha=-group["lr"])
                else:
                    exp_avg, exp_avg_sq = moments(self.state[p], p, "exp_avg", "exp_avg_sq")
                    exp_avg.lerp_(p.grad, 0.1)
                    exp_avg_sq.lerp_(p.grad.square(), 0.01)
                    correction = math.sqrt(1 - 0.99 ** group["step"]) / (1 - 0.9 ** group["step"])
                    p.addcdiv_(exp_avg, exp_avg_sq.sqrt().add_(1e-8), value=-group["lr"] * correction)
            if group["step"] == 5:
                group["phase"] = "SGD"


class AutoClip(Optimizer):
    """SGD that clips to the median of all norms so far, a list of floats that grows on itself."""

    def __init__(self, params, lr=0.2):
        super().__init__(params, {"lr": lr})
        self.grad_history = []

    def step(self, closure=None):
        norms = [p.grad.norm() for group in self.param_groups for p in with_grads(group)]
        norm = torch.stack(norms).norm().item()
        self.grad_history.append(norm)
        limit = sorted(self.grad_history)[len(self.grad_history) // 2]
        descend(self, min(1.0, limit / (norm + 1e-6)))


class CosineDecay:
    """A cosine as of SPAM, from a scheduler of an optimizer of its own."""

    def __init__(self, death_rate, t_max):
        self.sgd = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=death_rate)
        self.stepper = CosineAnnealingLR(self.sgd, t_max + 1, 0.1)

    def step(self):
        self.sgd.step()
        self.stepper.step()

    def get_death_rate(self):
        return self.sgd.param_groups[0]["lr"]


class Spam(Optimizer):
    """SPAM-like: replaces its moments by zeros, and its warm-up object by a new one, every 5 steps."""

    def __init__(self, params, lr=0.05, update_proj_gap=5):
        super().__init__(params, {"lr": lr})
        self.update_proj_gap = update_proj_gap
        self.state["total_step"] = 0
        self.warmup = CosineDecay(0.9, update_proj_gap)

    @torch.no_grad()
    def step(self, closure=None):
        scale = 1.0 - self.warmup.get_death_rate()
        for group in self.param_groups:
            for p in with_grads(group):
                state = self.state[p]
                if "exp_avg" not in state or (self.state["total_step"] + 1) % self.update_proj_gap == 0:
                    state["exp_avg"] = torch.zeros_like(p)
                    state["exp_avg_sq"] = torch.zeros_like(p)
                state["exp_avg"].mul_(0.9).add_(p.grad, alpha=0.1)
                state["exp_avg_sq"].mul_(0.99).addcmul_(p.grad, p.grad, value=0.01)
                p.addcdiv_(state["exp_avg"], state["exp_avg_sq"].sqrt().add_(1e-4), value=-group["lr"] * scale)
        self.state["total_step"] += 1
        self.warmup.step()
        if self.state["total_step"] % self.update_proj_gap == 0:
            self.warmup = CosineDecay(0.9, self.update_proj_gap)


class Langevin(Optimizer):
    """SGD with noise of torch's own generator, which falls with a count."""

    def __init__(self, params, lr=0.1, noise=0.05):
        super().__init__(params, {"lr": lr, "noise": noise})
        self.t = 0

    @torch.no_grad()
    def step(self, closure=None):
        self.t += 1
        for group in self.param_groups:
            for p in with_grads(group):
                p.add_(p.grad, alpha=-group["lr"]).add_(torch.randn_like(p), alpha=group["noise"] / self.t)


def make_langevin(params):
    """Return an optimizer whose noise is the same each time."""
    torch.manual_seed(7)
    return Langevin(params), nothing


class RandomPreconditioner(Optimizer):
    """PSGD-like: updates its preconditioner when a `random.Random` on itself says so, less often as a count rises."""

    def __init__(self, params, lr=0.05):
        super().__init__(params, {"lr": lr})
        self.rng = random.Random(5318008)
        self._prob_step = 0
        self.updates = 0
        self.update_probability = lambda n: max(0.3, math.exp(-0.2 * n))

    @torch.no_grad()
    def step(self, closure=None):
        do_update = self.rng.random() < self.update_probability(self._prob_step)
        self._prob_step += 1
        self.updates += do_update
        for group in self.param_groups:
            for p in with_grads(group):
                (square,) = moments(self.state[p], p, "Q")
                if do_update:
                    square.mul_(0.5).addcmul_(p.grad, p.grad, value=0.5)
                p.addcdiv_(p.grad, square.sqrt().add_(0.1), value=-group["lr"])


class DroppedSteps(Optimizer):
    """Skips steps when the global `random` says so."""

    def __init__(self, params, lr=0.1):
        super().__init__(params, {"lr": lr})
        self.skipped = 0

    def step(self, closure=None):
        if random.random() < 0.3:
            self.skipped += 1
        else:
            descend(self)


def make_dropped_steps(params):
    """Return an optimizer that skips the same steps each time."""
    random.seed(3)
    return DroppedSteps(params), nothing


PRODIGY = ("param_groups.0.d", "param_groups.0.d_numerator")

ESTIMATING = (
    Published("prodigy_read", plain(Prodigy), (*PRODIGY, "param_groups.0.k")),
    Published("prodigy_tensors_in_place", plain(ProdigyInTensors), PRODIGY),
    Published("prodigy_tensors_reassigned", plain(lambda params: ProdigyInTensors(params, in_place=False)), PRODIGY),
    Published("dadapt_sgd", plain(DAdaptSgd), ("param_groups.0.k", "param_groups.0.d", "param_groups.0.g0_norm")),
    Published("sgd_with_momentum_warmup", plain(SgdWithMomentumWarmup), ("state.k", "param_groups.0.momentum")),
    Published("decay_of_weight_decay", plain(DecayOfWeightDecay), ("param_groups.0.weight_decay",)),
    Published("adashift", plain(AdaShift)),
    Published("swapped_momenta", plain(SwappedMomenta)),
    Published("barzilai_borwein", plain(BarzilaiBorwein), ("param_groups.0.lr",)),
    Published("swats", plain(Swats), ("param_groups.0.step", "param_groups.0.phase")),
    Published("autoclip", plain(AutoClip), ("grad_history",)),
    Published("spam", plain(Spam), ("state.total_step", "warmup.stepper.last_epoch")),
    Published("langevin", make_langevin, ("t",)),
    Published("random_preconditioner", plain(RandomPreconditioner), ("_prob_step", "updates")),
    Published("dropped_steps", make_dropped_steps, ("skipped",)),
)
