"""Relatives of Adam, with the steps, products and caches that they keep as Python numbers."""

from __future__ import annotations

import math

import torch
from torch.optim import Optimizer

from support.published_optimizers.kinds import Published, moments, plain, with_grads


class RAdam(Optimizer):
    """RAdam as of torch-optimizer: caches rectified step sizes in a list of lists in the group; a branch at the sixth step."""

    def __init__(self, params, lr=0.05, betas=(0.9, 0.999), eps=1e-8):
        buffer = [[None, None, None] for _ in range(10)]
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "buffer": buffer})

    def step(self, closure=None):
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for p in with_grads(group):
                state = self.state[p]
                if len(state) == 0:
                    state["step"] = 0
                exp_avg, exp_avg_sq = moments(state, p.data, "exp_avg", "exp_avg_sq")
                grad = p.grad.data.float()
                exp_avg_sq.mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
                exp_avg.mul_(beta1).add_(grad, alpha=1 - beta1)
                state["step"] += 1
                buffered = group["buffer"][state["step"] % 10]
                if state["step"] != buffered[0]:
                    buffered[:] = state["step"], *self.rectified(state["step"], group)
                if buffered[1] >= 5:
                    p.data.addcdiv_(exp_avg, exp_avg_sq.sqrt().add_(group["eps"]), value=-buffered[2])
                else:
                    p.data.add_(exp_avg, alpha=-buffered[2])

    def rectified(self, step, group):
        beta1, beta2 = group["betas"]
        longest = 2 / (1 - beta2) - 1
        length = longest - 2 * step * beta2**step / (1 - beta2**step)
        if length < 5:
            return length, group["lr"] / (1 - beta1**step)
        shape = (length - 4) / (longest - 4) * (length - 2) / length * longest / (longest - 2)
        return length, group["lr"] * math.sqrt((1 - beta2**step) * shape) / (1 - beta1**step)


class AdaBound(Optimizer):
    """AdaBound: bounds that close with the step, and a list of the first learning rates on itself."""

    def __init__(self, params, lr=0.02, final_lr=0.1, gamma=0.1):
        super().__init__(params, {"lr": lr, "final_lr": final_lr, "gamma": gamma, "betas": (0.9, 0.99), "eps": 1e-8})
        self.base_lrs = [group["lr"] for group in self.param_groups]

    def step(self, closure=None):
        for group, base_lr in zip(self.param_groups, self.base_lrs, strict=True):
            beta1, beta2 = group["betas"]
            for p in with_grads(group):
                state = self.state[p]
                if len(state) == 0:
                    state["step"] = 0
                exp_avg, exp_avg_sq = moments(state, p.data, "exp_avg", "exp_avg_sq")
                state["step"] += 1
                t = state["step"]
                exp_avg.mul_(beta1).add_(p.grad.data, alpha=1 - beta1)
                exp_avg_sq.mul_(beta2).addcmul_(p.grad.data, p.grad.data, value=1 - beta2)
                denom = exp_avg_sq.sqrt().add_(group["eps"])
                step_size = group["lr"] * math.sqrt(1 - beta2**t) / (1 - beta1**t)
                final_lr = group["final_lr"] * group["lr"] / base_lr
                lower = final_lr * (1 - 1 / (group["gamma"] * t + 1))
                upper = final_lr * (1 + 1 / (group["gamma"] * t))
                p.data.sub_(torch.full_like(denom, step_size).div_(denom).clamp_(lower, upper).mul_(exp_avg))


class Adafactor(Optimizer):
    """Adafactor: a step size relative to a Python step, factored moments, and optionally the scale of the weights, read."""

    def __init__(self, params, scale_parameter=False):
        super().__init__(params, {"lr": None, "eps2": (1e-30, 1e-3), "decay_rate": -0.8, "scale_parameter": scale_parameter})

    def step(self, closure=None):
        for group in self.param_groups:
            for p in with_grads(group):
                grad, state = p.grad.data, self.state[p]
                factored = grad.dim() >= 2
                if len(state) == 0:
                    state["step"] = 0
                    state["RMS"] = 0
                    if factored:
                        state["exp_avg_sq_row"] = torch.zeros(grad.shape[:-1]).type_as(grad)
                        state["exp_avg_sq_col"] = torch.zeros(grad.shape[:-2] + grad.shape[-1:]).type_as(grad)
                    else:
                        state["exp_avg_sq"] = torch.zeros_like(grad)
                state["step"] += 1
                state["RMS"] = p.data.norm(2) / p.numel() ** 0.5
                lr = min(0.05, 1.0 / math.sqrt(state["step"] * 100))
                if group["scale_parameter"]:
                    lr = lr * max(group["eps2"][1], state["RMS"])
                beta2 = 1.0 - math.pow(state["step"], group["decay_rate"])
                square = grad**2 + group["eps2"][0]
                if factored:
                    row = state["exp_avg_sq_row"].mul_(beta2).add_(square.mean(dim=-1), alpha=1.0 - beta2)
                    col = state["exp_avg_sq_col"].mul_(beta2).add_(square.mean(dim=-2), alpha=1.0 - beta2)
                    inverse = (row / row.mean(dim=-1, keepdim=True)).rsqrt_().unsqueeze(-1) * col.unsqueeze(-2).rsqrt()
                else:
                    inverse = state["exp_avg_sq"].mul_(beta2).add_(square, alpha=1.0 - beta2).rsqrt()
                update = inverse * grad
                update.div_((update.norm(2) / update.numel() ** 0.5).clamp_(min=1.0))
                p.data.sub_(update * lr)


class Adan(Optimizer):
    """Adan: differences of gradients from the second step on, and a condition of restarts given as a function."""

    def __init__(self, params, lr=0.02, betas=(0.02, 0.08, 0.01), restart_cond=None):
        super().__init__(params, {"lr": lr, "betas": betas, "eps": 1e-8, "weight_decay": 0.02, "restart_cond": restart_cond})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            beta1, beta2, beta3 = group["betas"]
            for p in with_grads(group):
                state = self.state[p]
                if len(state) == 0:
                    state["step"] = 0
                prev_grad, m, v, n = moments(state, p, "prev_grad", "m", "v", "n")
                if state["step"] > 0:
                    difference = p.grad - prev_grad
                    m.mul_(1 - beta1).add_(p.grad, alpha=beta1)
                    v.mul_(1 - beta2).add_(difference, alpha=beta2)
                    n.mul_(1 - beta3).add_((p.grad + (1 - beta2) * difference) ** 2, alpha=beta3)
                step = state["step"] + 1
                correct_m, correct_v, correct_n = (1 / (1 - (1 - beta) ** step) for beta in group["betas"])
                size = group["lr"] / (n * correct_n).sqrt().add_(group["eps"])
                p.addcmul_(size, m * correct_m + (1 - beta2) * v * correct_v, value=-1.0)
                p.div_(1 + group["weight_decay"] * group["lr"])
                if group["restart_cond"] is not None and group["restart_cond"](state):
                    m.copy_(p.grad)
                    v.zero_()
                    n.copy_(p.grad**2)
                prev_grad.copy_(p.grad)
                state["step"] = step


class Lamb(Optimizer):
    """LAMB as of timm: a step in the group, a trust ratio per parameter and a global norm as tensors."""

    def __init__(self, params, lr=0.05, betas=(0.9, 0.99), weight_decay=0.01):
        super().__init__(params, {"lr": lr, "betas": betas, "eps": 1e-6, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure=None):
        norms = torch.stack([p.grad.norm() for group in self.param_groups for p in with_grads(group)])
        clip = torch.clamp(norms.norm(), min=1.0)
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            group["step"] = group["step"] + 1 if "step" in group else 1
            for p in with_grads(group):
                exp_avg, exp_avg_sq = moments(self.state[p], p, "exp_avg", "exp_avg_sq")
                grad = p.grad / clip
                exp_avg.mul_(beta1).add_(grad, alpha=1 - beta1)
                exp_avg_sq.mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
                denom = (exp_avg_sq.sqrt() / math.sqrt(1 - beta2 ** group["step"])).add_(group["eps"])
                update = (exp_avg / (1 - beta1 ** group["step"])).div_(denom).add_(p, alpha=group["weight_decay"])
                w_norm, g_norm = p.norm(2.0), update.norm(2.0)
                one = torch.ones_like(w_norm)
                trust = torch.where(w_norm > 0, torch.where(g_norm > 0, w_norm / g_norm, one), one)
                p.add_(update.mul_(trust.clamp(max=1.0)), alpha=-group["lr"])


class Lars(Optimizer):
    """LARS: trust ratios as tensors, a momentum buffer made from the first gradient, and no count at all."""

    def __init__(self, params, lr=0.5, momentum=0.9, trust_coeff=0.1):
        super().__init__(params, {"lr": lr, "momentum": momentum, "trust_coeff": trust_coeff, "eps": 1e-8})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in with_grads(group):
                w_norm, g_norm = p.norm(2.0), p.grad.norm(2.0)
                trust = group["trust_coeff"] * w_norm / (g_norm + group["eps"])
                grad = p.grad * torch.where(w_norm > 0, trust, torch.ones_like(trust))
                state = self.state[p]
                if "momentum_buffer" not in state:
                    buffer = state["momentum_buffer"] = torch.clone(grad).detach()
                else:
                    buffer = state["momentum_buffer"].mul_(group["momentum"]).add_(grad)
                p.add_(buffer, alpha=-group["lr"])


class NovoGrad(Optimizer):
    """NovoGrad: one second moment for each parameter, which a branch compares with zero; a Python step beside it."""

    def __init__(self, params, lr=0.05, betas=(0.95, 0.98)):
        super().__init__(params, {"lr": lr, "betas": betas, "eps": 1e-8, "grad_averaging": True})

    def step(self, closure=None):
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for p in with_grads(group):
                grad, state = p.grad.data, self.state[p]
                if len(state) == 0:
                    state["step"] = 0
                    state["exp_avg_sq"] = torch.zeros([]).to(p.device)
                (exp_avg,) = moments(state, p.data, "exp_avg")
                state["step"] += 1
                norm = torch.sum(torch.pow(grad, 2))
                if state["exp_avg_sq"] == 0:
                    state["exp_avg_sq"].copy_(norm)
                else:
                    state["exp_avg_sq"].mul_(beta2).add_(norm, alpha=1 - beta2)
                exp_avg.mul_(beta1).add_(grad / state["exp_avg_sq"].sqrt().add_(group["eps"]), alpha=1 - beta1)
                p.data.add_(exp_avg, alpha=-group["lr"])


class NAdam(Optimizer):
    """NAdam as before torch 1.12: the step and the product of momenta are Python numbers of each parameter's state."""

    def __init__(self, params, lr=0.02, betas=(0.9, 0.99), momentum_decay=4e-2):
        super().__init__(params, {"lr": lr, "betas": betas, "eps": 1e-8, "momentum_decay": momentum_decay})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for p in with_grads(group):
                state = self.state[p]
                if len(state) == 0:
                    state["step"] = 0
                    state["mu_product"] = 1.0
                exp_avg, exp_avg_sq = moments(state, p, "exp_avg", "exp_avg_sq")
                state["step"] += 1
                t = state["step"]
                mu, mu_next = (beta1 * (1.0 - 0.5 * 0.96 ** (n * group["momentum_decay"])) for n in (t, t + 1))
                state["mu_product"] *= mu
                exp_avg.mul_(beta1).add_(p.grad, alpha=1 - beta1)
                exp_avg_sq.mul_(beta2).addcmul_(p.grad, p.grad, value=1 - beta2)
                denom = exp_avg_sq.div(1 - beta2**t).sqrt().add_(group["eps"])
                p.addcdiv_(p.grad, denom, value=-group["lr"] * (1.0 - mu) / (1.0 - state["mu_product"]))
                p.addcdiv_(exp_avg, denom, value=-group["lr"] * mu_next / (1.0 - state["mu_product"] * mu_next))


def lion_update(p, grad, exp_avg, lr, wd, beta1, beta2):
    """Update a parameter by the sign of its momentum."""
    p.data.mul_(1.0 - lr * wd)
    p.add_(exp_avg.clone().mul_(beta1).add(grad, alpha=1.0 - beta1).sign_(), alpha=-lr)
    exp_avg.mul_(beta2).add_(grad, alpha=1.0 - beta2)


class Lion(Optimizer):
    """Lion as of lion-pytorch: no count; the rule and the first learning rate are attributes of itself."""

    def __init__(self, params, lr=0.01, betas=(0.9, 0.99), weight_decay=0.01):
        self._init_lr = lr
        super().__init__(params, {"lr": lr, "betas": betas, "weight_decay": weight_decay})
        self.update_fn = lion_update

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in with_grads(group):
                state = self.state[p]
                if len(state) == 0:
                    state["exp_avg"] = torch.zeros_like(p)
                decay = group["weight_decay"] / self._init_lr
                self.update_fn(p, p.grad, state["exp_avg"], group["lr"], decay, *group["betas"])


class Adopt(Optimizer):
    """ADOPT: the first step only fills the second moment, later ones clip by a power of the Python step."""

    def __init__(self, params, lr=0.02, betas=(0.9, 0.99)):
        super().__init__(params, {"lr": lr, "betas": betas, "eps": 1e-6})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for p in with_grads(group):
                state = self.state[p]
                if len(state) == 0:
                    state["step"] = 0
                exp_avg, exp_avg_sq = moments(state, p, "exp_avg", "exp_avg_sq")
                if state["step"] == 0:
                    exp_avg_sq.addcmul_(p.grad, p.grad)
                else:
                    normed = p.grad.div(exp_avg_sq.sqrt().clamp_(min=group["eps"]))
                    limit = state["step"] ** 0.25
                    exp_avg.lerp_(normed.clamp_(-limit, limit), 1 - beta1)
                    p.add_(exp_avg, alpha=-group["lr"])
                    exp_avg_sq.mul_(beta2).addcmul_(p.grad, p.grad, value=1 - beta2)
                state["step"] += 1


class Ranger(Optimizer):
    """Ranger21-like: warm-up flag and current rate on itself, centralised gradients, Lookahead, two momenta in turn."""

    def __init__(self, params, lr=0.05, num_warmup_iters=5, lookahead_mergetime=3):
        super().__init__(params, {"lr": lr, "betas": (0.9, 0.99), "eps": 1e-8})
        self.starting_lr = lr
        self.current_lr = lr
        self.num_warmup_iters = num_warmup_iters
        self.warmup_complete = False
        self.lookahead_mergetime = lookahead_mergetime
        self.lookahead_step = 0
        self.tracking_lr = []

    def warmed_up(self, lr, step):
        if self.warmup_complete:
            return lr
        self.current_lr = lr * min(1.0, step / self.num_warmup_iters)
        if step > self.num_warmup_iters:
            self.warmup_complete = True
        return self.current_lr

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for p in with_grads(group):
                state = self.state[p]
                if len(state) == 0:
                    state["step"] = 0
                    state["lookahead_params"] = p.clone()
                grad_ma, neg_grad_ma, variance_ma = moments(state, p, "grad_ma", "neg_grad_ma", "variance_ma")
                state["step"] += 1
                if state["step"] % 2 == 0:
                    grad_ma, neg_grad_ma = neg_grad_ma, grad_ma
                grad = p.grad
                if grad.dim() > 1:
                    grad = grad - grad.mean(dim=tuple(range(1, grad.dim())), keepdim=True)
                variance_ma.mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
                denom = (variance_ma / (1 - beta2 ** state["step"])).sqrt().add_(group["eps"])
                grad_ma.mul_(beta1**2).add_(grad, alpha=1 - beta1**2)
                lr = self.warmed_up(group["lr"], state["step"])
                p.addcdiv_(grad_ma * 2 - neg_grad_ma, denom, value=-lr / math.sqrt(5))
        self.tracking_lr.append(self.current_lr)
        self.lookahead_step += 1
        if self.lookahead_step >= self.lookahead_mergetime:
            self.lookahead_step = 0
            for group in self.param_groups:
                for p in with_grads(group):
                    slow = self.state[p]["lookahead_params"].lerp_(p, 0.5)
                    p.copy_(slow)


def restart_every_four(state):
    """Return whether Adan restarts: in every fourth step."""
    return state["step"] > 0 and state["step"] % 4 == 0


ADAPTIVE = (
    Published("radam_with_buffer", plain(RAdam), ("param_groups.0.buffer.1.0", "param_groups.0.buffer.6.2")),
    Published("adabound", plain(AdaBound)),
    Published("adafactor_relative_step", plain(Adafactor)),
    Published("adafactor_scaled_by_weights", plain(lambda params: Adafactor(params, scale_parameter=True))),
    Published("adan", plain(Adan)),
    Published("adan_with_restarts", plain(lambda params: Adan(params, restart_cond=restart_every_four))),
    Published("lamb", plain(Lamb), ("param_groups.0.step",)),
    Published("lars", plain(Lars)),
    Published("novograd", plain(NovoGrad)),
    Published("nadam", plain(NAdam)),
    Published("lion", plain(Lion)),
    Published("adopt", plain(Adopt)),
    Published("ranger", plain(Ranger), ("warmup_complete", "current_lr", "lookahead_step", "tracking_lr")),
)
