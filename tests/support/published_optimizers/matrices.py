"""Optimizers that treat matrices as such, or store their state in fewer bits: Muon, Shampoo, GaLore, Sophia, 8 bits."""

from __future__ import annotations

import math

import torch
from torch.optim import Optimizer

from support.published_optimizers.kinds import Published, adamw, each_step, moments, plain, with_grads


def orthogonalised(matrix, steps=5):
    """Return a matrix with singular values near one, by Newton-Schulz iterations."""
    a, b, c = 3.4445, -4.7750, 2.0315
    x = matrix.flatten(1).bfloat16()
    x = x / (x.norm() + 1e-7)
    for _ in range(steps):
        square = x @ x.mT
        x = a * x + (b * square + c * square @ square) @ x
    return x.to(matrix.dtype).view_as(matrix)


class MuonWithAuxAdam(Optimizer):
    """Muon for groups marked so and Adam for others, whose steps are Python numbers of each parameter's state."""

    def __init__(self, params):
        matrices, others = [p for p in params if p.ndim >= 2], [p for p in params if p.ndim < 2]
        groups = [
            {"params": matrices, "lr": 0.05, "momentum": 0.95, "use_muon": True},
            {"params": others, "lr": 0.02, "betas": (0.9, 0.95), "eps": 1e-10, "use_muon": False},
        ]
        super().__init__([group for group in groups if group["params"]], {})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in with_grads(group):
                state = self.state[p]
                if group["use_muon"]:
                    (buffer,) = moments(state, p, "momentum_buffer")
                    buffer.lerp_(p.grad, 1 - group["momentum"])
                    p.add_(orthogonalised(p.grad.lerp(buffer, group["momentum"])), alpha=-group["lr"])
                else:
                    state["step"] = state.get("step", 0) + 1
                    exp_avg, exp_avg_sq = moments(state, p, "exp_avg", "exp_avg_sq")
                    beta1, beta2 = group["betas"]
                    exp_avg.lerp_(p.grad, 1 - beta1)
                    exp_avg_sq.lerp_(p.grad.square(), 1 - beta2)
                    denom = (exp_avg_sq / (1 - beta2 ** state["step"])).sqrt() + group["eps"]
                    p.sub_(exp_avg / (1 - beta1 ** state["step"]) / denom * group["lr"])


class MuonAroundAdamW(Optimizer):
    """Muon that holds an AdamW for the vectors; groups of both, a count on itself that sets the inner learning rate."""

    def __init__(self, params, lr=0.05):
        super().__init__([p for p in params if p.ndim >= 2], {"lr": lr, "momentum": 0.9})
        self.adamw = adamw([p for p in params if p.ndim < 2])
        self.iteration = 0
        self.own_groups = self.param_groups
        self.param_groups = self.own_groups + self.adamw.param_groups

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.adamw.param_groups:
            group["lr"] = 0.02 * 0.9**self.iteration
        self.iteration += 1
        for group in self.own_groups:
            for p in with_grads(group):
                (buffer,) = moments(self.state[p], p, "momentum_buffer")
                buffer.mul_(group["momentum"]).add_(p.grad)
                p.add_(orthogonalised(p.grad + group["momentum"] * buffer), alpha=-group["lr"])
        self.adamw.step()


def make_muon_with_momentum_warmup(params):
    """Return Muon whose momentum the training loop raises until the sixth step."""
    optimizer = MuonWithAuxAdam(params)

    def warm_up(step):
        for group in optimizer.param_groups:
            if group["use_muon"]:
                share = min(step / 6, 1)
                group["momentum"] = (1 - share) * 0.85 + share * 0.95

    return optimizer, each_step(warm_up)


class Shampoo(Optimizer):
    """Shampoo: a Python step for each parameter, and inverse roots by eigenvalues every 3 steps."""

    def __init__(self, params, lr=0.05, update_freq=3, epsilon=0.01):
        super().__init__(params, {"lr": lr, "update_freq": update_freq, "epsilon": epsilon})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in with_grads(group):
                grad, state = p.grad, self.state[p]
                if len(state) == 0:
                    state["step"] = 0
                    for index, size in enumerate(grad.size()):
                        state[f"precond_{index}"] = group["epsilon"] * torch.eye(size, device=p.device)
                        state[f"inv_precond_{index}"] = grad.new_zeros(size, size)
                for index in range(grad.dim()):
                    matrix = p.grad.transpose(0, index).flatten(1) if grad.dim() > 1 else p.grad.unsqueeze(1)
                    state[f"precond_{index}"].add_(matrix @ matrix.t())
                    inverse = state[f"inv_precond_{index}"]
                    if state["step"] % group["update_freq"] == 0:
                        values, vectors = torch.linalg.eigh(state[f"precond_{index}"])
                        power = values.clamp(min=group["epsilon"]).pow(-1 / (2 * grad.dim()))
                        inverse.copy_(vectors @ power.diag() @ vectors.t())
                    grad = torch.tensordot(inverse, grad, dims=([1], [index])).movedim(0, index)
                state["step"] += 1
                p.add_(grad, alpha=-group["lr"])


class GaLoreProjector:
    """A projection to few directions of a gradient, found again every few steps."""

    def __init__(self, rank, update_proj_gap):
        self.rank = rank
        self.update_proj_gap = update_proj_gap
        self.ortho_matrix = None
        self.last_svd_step = -1

    def project(self, grad, step):
        if self.ortho_matrix is None or step % self.update_proj_gap == 0:
            self.ortho_matrix = torch.linalg.svd(grad, full_matrices=False).Vh[: self.rank].clone()
            self.last_svd_step = step
        return grad @ self.ortho_matrix.t()

    def project_back(self, low_rank):
        return low_rank @ self.ortho_matrix


class GaLore(Optimizer):
    """GaLore: a projector object in the state of each matrix, and the Python step that tells it when to look anew."""

    def __init__(self, params, lr=0.05, rank=2, update_proj_gap=5):
        super().__init__(params, {"lr": lr, "betas": (0.9, 0.99), "rank": rank, "update_proj_gap": update_proj_gap})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for p in with_grads(group):
                grad, state = p.grad, self.state[p]
                if "step" not in state:
                    state["step"] = 0
                if p.dim() == 2:
                    if "projector" not in state:
                        state["projector"] = GaLoreProjector(group["rank"], group["update_proj_gap"])
                    grad = state["projector"].project(grad, state["step"])
                exp_avg, exp_avg_sq = moments(state, grad, "exp_avg", "exp_avg_sq")
                state["step"] += 1
                exp_avg.mul_(beta1).add_(grad, alpha=1 - beta1)
                exp_avg_sq.mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
                size = group["lr"] * math.sqrt(1 - beta2 ** state["step"]) / (1 - beta1 ** state["step"])
                update = exp_avg / exp_avg_sq.sqrt().add_(1e-4)
                if p.dim() == 2:
                    update = state["projector"].project_back(update)
                p.add_(update, alpha=-size)


class CentralisedSgd(torch.optim.SGD):
    """SGD that subtracts the mean of each matrix's gradient in place, then calls its base class; no count."""

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in with_grads(group):
                if p.dim() > 1:
                    p.grad.sub_(p.grad.mean(dim=tuple(range(1, p.dim())), keepdim=True))
        return super().step(closure)


class Sophia(Optimizer):
    """Sophia: an estimate of the Hessian every 4 steps, which is in the state only from then on; the step in the group."""

    def __init__(self, params, lr=0.05, betas=(0.9, 0.95), update_period=4, rho=0.5):
        super().__init__(params, {"lr": lr, "betas": betas, "rho": rho, "step": 0})
        self.update_period = update_period

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            update_hessian = group["step"] % self.update_period == 0
            group["step"] += 1
            for p in with_grads(group):
                momentum, hessian_moment = moments(self.state[p], p, "momentum", "hessian_moment")
                momentum.lerp_(p.grad, 1 - beta1)
                if update_hessian:
                    self.state[p]["hessian"] = p.grad.square()
                    hessian_moment.lerp_(self.state[p]["hessian"], 1 - beta2)
                update = momentum / hessian_moment.clamp(min=1e-3)
                p.add_(update.clamp_(-group["rho"], group["rho"]), alpha=-group["lr"])


class OptimManager:
    """The one object that all optimizers of 8 bits ask for options, by the identity of a parameter."""

    _instance = None

    def __init__(self):
        raise RuntimeError("call get_instance() instead")

    @classmethod
    def get_instance(cls):
        if cls._instance is None:
            cls._instance = cls.__new__(cls)
            cls._instance.pid2config = {}
        return cls._instance


def quantised(x, low, levels):
    """Return bytes for numbers between `low` and one times the largest of them, and that largest."""
    absmax = x.abs().amax().clamp(min=1e-12)
    return ((x / absmax - low) * levels).round().to(torch.uint8), absmax


class EightBitAdam(Optimizer):
    """Adam as of bitsandbytes: bytes and scales that are new tensors in each step, tables made at the first step."""

    def __init__(self, params, lr=0.02, betas=(0.9, 0.99)):
        super().__init__(params, {"lr": lr, "betas": betas, "eps": 1e-2})
        self.initialized = False
        self.name2qmap = {}
        self.mng = OptimManager.get_instance()

    def fill_qmap(self, device):
        self.name2qmap["signed"] = torch.linspace(-1, 1, 255, device=device)
        self.name2qmap["unsigned"] = torch.linspace(0, 1, 256, device=device)

    @torch.no_grad()
    def step(self, closure=None):
        if not self.initialized:
            self.fill_qmap(self.param_groups[0]["params"][0].device)
            self.initialized = True
        for group in self.param_groups:
            for p in with_grads(group):
                state = self.state[p]
                config = {**group, **self.mng.pid2config.get(id(p), {})}
                beta1, beta2 = config["betas"]
                if len(state) == 0:
                    state["step"] = 0
                    state["state1"], state["absmax1"] = quantised(torch.zeros_like(p), -1, 127)
                    state["state2"], state["absmax2"] = quantised(torch.zeros_like(p), 0, 255)
                state["step"] += 1
                exp_avg = self.name2qmap["signed"][state["state1"].long()] * state["absmax1"]
                exp_avg_sq = (self.name2qmap["unsigned"][state["state2"].long()] * state["absmax2"]).square()
                exp_avg = exp_avg * beta1 + p.grad * (1 - beta1)
                exp_avg_sq = exp_avg_sq * beta2 + p.grad.square() * (1 - beta2)
                size = config["lr"] * math.sqrt(1 - beta2 ** state["step"]) / (1 - beta1 ** state["step"])
                p.addcdiv_(exp_avg, exp_avg_sq.sqrt() + config["eps"], value=-size)
                state["state1"], state["absmax1"] = quantised(exp_avg, -1, 127)
                state["state2"], state["absmax2"] = quantised(exp_avg_sq.sqrt(), 0, 255)


MATRICES = (
    Published("muon_with_aux_adam", plain(MuonWithAuxAdam)),
    Published("muon_with_momentum_warmup", make_muon_with_momentum_warmup, ("param_groups.0.momentum",)),
    Published("muon_around_adamw", plain(MuonAroundAdamW), ("iteration", "adamw.param_groups.0.lr")),
    Published("shampoo", plain(Shampoo)),
    Published("galore", plain(GaLore)),
    Published("gradient_centralisation", plain(lambda params: CentralisedSgd(params, lr=0.1, momentum=0.9))),
    Published("sophia", plain(Sophia), ("param_groups.0.step",)),
    Published("eight_bit_adam", plain(EightBitAdam), ("initialized",)),
)
