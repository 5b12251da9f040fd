"""Optimizers around optimizers, as of accelerate, Lightning, apex, DeepSpeed, and one of no base class as of fastai."""

from __future__ import annotations

import weakref
from collections import defaultdict
from dataclasses import dataclass, field

import torch
from torch.optim import Optimizer

from support.published_optimizers.kinds import Published, adamw, each_step, plain, sgd, with_grads


class GradientState:
    """Whether gradients are complete, in a dict that all instances share."""

    _shared_state = {}

    def __init__(self):
        self.__dict__ = self._shared_state
        if "sync_gradients" not in self.__dict__:
            self.sync_gradients = True


@dataclass
class OptimizerState:
    """Counts of steps taken and left out."""

    taken: int = 0
    skipped: int = 0


class AcceleratedOptimizer(Optimizer):
    """As of accelerate: no `super().__init__`; properties to the inner optimizer; no step while gradients accumulate.

    The real one leaves out `zero_grad` then, too. This one does not, since a training step resets gradients in each call.
    """

    def __init__(self, optimizer):
        self.optimizer = optimizer
        self.gradient_state = GradientState()
        self.optimizer_state = OptimizerState()
        self.optimizer.load_state_dict(self.optimizer.state_dict())

    @property
    def state(self):
        return self.optimizer.state

    @property
    def param_groups(self):
        return self.optimizer.param_groups

    @property
    def defaults(self):
        return self.optimizer.defaults

    def zero_grad(self, set_to_none=True):
        self.optimizer.zero_grad(set_to_none=set_to_none)

    def step(self, closure=None):
        if self.gradient_state.sync_gradients:
            self.optimizer.step(closure)
            self.optimizer_state.taken += 1
        else:
            self.optimizer_state.skipped += 1


def make_accelerated(params):
    """Return a wrapper that steps in every second call."""
    GradientState._shared_state.clear()
    optimizer = AcceleratedOptimizer(adamw(params))
    optimizer.gradient_state.sync_gradients = False

    def accumulate(step):
        GradientState().sync_gradients = step % 2 == 1

    return optimizer, each_step(accumulate)


def do_nothing_closure():
    """Do nothing, as a closure of Lightning."""


@dataclass
class LoopProgress:
    """Steps that a loop has begun and finished."""

    ready: int = 0
    completed: int = 0

    def increment_ready(self):
        self.ready += 1

    def increment_completed(self):
        self.completed += 1


class Strategy:
    """Steps optimizers on behalf of their wrappers, and counts what it did."""

    def __init__(self):
        self.calls = 0
        self.batches = 0

    def optimizer_step(self, optimizer, closure):
        self.calls += 1
        return optimizer.step(closure=closure)

    def on_batch_end(self):
        self.batches += 1


class LightningOptimizer:
    """As of Lightning 2: takes a class made of both, delegates to a strategy behind a weak reference, calls two hooks."""

    def __init__(self, optimizer):
        self._optimizer = optimizer
        self._strategy = None
        self._on_before_step = do_nothing_closure
        self._on_after_step = do_nothing_closure
        self.__class__ = type("Lightning" + type(optimizer).__name__, (type(self), type(optimizer)), {})

    @property
    def optimizer(self):
        return self._optimizer

    def step(self, closure=None):
        self._on_before_step()
        output = self._strategy.optimizer_step(self._optimizer, closure or do_nothing_closure)
        self._on_after_step()
        return output

    def __getattr__(self, name):
        return getattr(self._optimizer, name)


class LightningOptimizerWithCopiedDict(LightningOptimizer):
    """As of Lightning 1: copies the inner optimizer's `__dict__`, so that both share groups and state."""

    def __init__(self, optimizer):
        self.__dict__ = {name: value for name, value in optimizer.__dict__.items() if name not in ("step", "__del__")}
        super().__init__(optimizer)


def make_lightning(kind, inner):
    """Return a `make` of a Lightning wrapper with a strategy and the progress of a loop."""

    def make(params):
        optimizer, strategy, progress = kind(inner(params)), Strategy(), LoopProgress()
        optimizer._strategy = weakref.proxy(strategy)
        optimizer._on_before_step = progress.increment_ready
        optimizer._on_after_step = progress.increment_completed
        return optimizer, strategy.on_batch_end

    return make


@dataclass
class LossScaler:
    """The dynamic scale of a loss, as apex and DeepSpeed count it."""

    cur_scale: float = 256.0
    cur_iter: int = 0
    last_overflow_iter: int = -1
    scale_window: int = 3

    def update_scale(self, overflow):
        if overflow:
            self.cur_scale = max(self.cur_scale / 2, 1.0)
            self.last_overflow_iter = self.cur_iter
        elif (self.cur_iter - self.last_overflow_iter) % self.scale_window == 0:
            self.cur_scale *= 2
        self.cur_iter += 1


class Fp16Optimizer:
    """As of apex: `.optimizer`, no subclass of Optimizer; reads whether a gradient overflowed, and counts for its scale."""

    def __init__(self, init_optimizer):
        self.optimizer = init_optimizer
        self.loss_scaler = LossScaler()
        self.overflow = False
        self.first_closure_call_this_step = True

    def __getattr__(self, name):
        return getattr(self.__dict__["optimizer"], name)

    def zero_grad(self, set_to_none=True):
        self.optimizer.zero_grad(set_to_none)

    def step(self, closure=None):
        grads = [p.grad for group in self.optimizer.param_groups for p in with_grads(group)]
        self.overflow = not all(bool(torch.isfinite(grad.sum())) for grad in grads)
        self.loss_scaler.update_scale(self.overflow)
        return None if self.overflow else self.optimizer.step(closure)


class MasterWeights(Optimizer):
    """As of DeepSpeed: the inner optimizer's groups hold one flat copy of the weights, of which the model's are copies."""

    def __init__(self, params, build):
        self.model_params = list(params)
        self.flat = torch.nn.Parameter(torch.cat([p.detach().flatten().float() for p in self.model_params]))
        self.optimizer = build([self.flat])
        self._global_grad_norm = 0.0
        self.steps_taken = 0

    @property
    def param_groups(self):
        return self.optimizer.param_groups

    @property
    def state(self):
        return self.optimizer.state

    def zero_grad(self, set_to_none=True):
        for p in self.model_params:
            p.grad = None

    @torch.no_grad()
    def step(self, closure=None):
        grads = [torch.zeros_like(p) if p.grad is None else p.grad for p in self.model_params]
        self.flat.grad = torch.cat([grad.flatten().float() for grad in grads])
        self._global_grad_norm = self.flat.grad.norm()
        self.optimizer.step()
        self.flat.grad = None
        for p, piece in zip(self.model_params, self.flat.split([p.numel() for p in self.model_params]), strict=True):
            p.data.copy_(piece.view_as(p))
        self.steps_taken += 1


class MultiOptimizer:
    """Several optimizers behind one `step`, with their groups and states together; counts on itself."""

    def __init__(self, *optimizers):
        self.optimizers = list(optimizers)
        self.defaults = {}
        self.global_step = 0

    @property
    def param_groups(self):
        return [group for optimizer in self.optimizers for group in optimizer.param_groups]

    @property
    def state(self):
        return {key: value for optimizer in self.optimizers for key, value in optimizer.state.items()}

    def zero_grad(self, set_to_none=True):
        for optimizer in self.optimizers:
            optimizer.zero_grad(set_to_none=set_to_none)

    def step(self, closure=None):
        for index, optimizer in enumerate(self.optimizers):
            if self.global_step % (index + 1) == 0:
                optimizer.step()
        self.global_step += 1


@dataclass
class Hypers:
    """Numbers of one group of the optimizer below."""

    lr: float
    mom: float = 0.9
    wd: float = 0.01


def count_step(state, p, hypers):
    """Count a step of a parameter."""
    return {"step": state.get("step", 0) + 1}


def average_grad(state, p, hypers):
    """Keep the average of a parameter's gradients."""
    return {"grad_avg": state.get("grad_avg", torch.zeros_like(p)) * hypers.mom + p.grad * (1 - hypers.mom)}


def average_step(state, p, hypers):
    """Update a parameter by its corrected average."""
    p.mul_(1 - hypers.lr * hypers.wd).sub_(state["grad_avg"] * (hypers.lr / (1 - hypers.mom ** state["step"])))
    return {}


@dataclass(eq=False)
class CallbackOptimizer:
    """As of fastai: no subclass of Optimizer; a list of functions that return new state, which replaces the old."""

    params: list
    hypers: Hypers
    cbs: list = field(default_factory=lambda: [count_step, average_grad, average_step])
    state: dict = field(default_factory=lambda: defaultdict(dict))

    @property
    def param_groups(self):
        return [{"params": self.params, **vars(self.hypers)}]

    def zero_grad(self, set_to_none=True):
        for p in self.params:
            p.grad = None

    @torch.no_grad()
    def step(self, closure=None):
        for p in with_grads({"params": self.params}):
            for cb in self.cbs:
                self.state[p] = {**self.state[p], **cb(self.state[p], p, self.hypers)}


PROGRESS = ("_strategy.calls", "_strategy.batches", "_on_before_step.__self__.ready", "_on_after_step.__self__.completed")

WRAPPERS = (
    Published("accelerated", make_accelerated, ("optimizer_state.taken", "optimizer_state.skipped")),
    Published("lightning_two", make_lightning(LightningOptimizer, adamw), PROGRESS),
    Published("lightning_one_with_copied_dict", make_lightning(LightningOptimizerWithCopiedDict, sgd), PROGRESS),
    Published(
        "fp16_wrapper_of_apex",
        plain(lambda params: Fp16Optimizer(sgd(params))),
        ("loss_scaler.cur_iter", "loss_scaler.cur_scale"),
    ),
    Published("master_weights_of_deepspeed", plain(lambda params: MasterWeights(params, adamw)), ("steps_taken",)),
    Published(
        "multi_optimizer",
        plain(lambda params: MultiOptimizer(sgd(params[::2]), adamw(params[1::2]))),
        ("global_step",),
    ),
    Published("callbacks_of_fastai", plain(lambda params: CallbackOptimizer(list(params), Hypers(lr=0.1)))),
)
