"""Where optimizers keep the number of their steps. Each divides its learning rate by a number that grows with the steps."""

from __future__ import annotations

import itertools
from collections import namedtuple
from dataclasses import dataclass

import numpy as np
import torch
from torch.optim import Optimizer

from support.published_optimizers.kinds import Published, decayed, descend, nothing, plain, with_grads

STEPS_TAKEN = 0
Progress = namedtuple("Progress", ["t", "best"])


class Sgd(Optimizer):
    """A learning rate and nothing else, for those below to add a count to."""

    def __init__(self, params, lr=0.1):
        super().__init__(params, {"lr": lr})


class OnSelf(Sgd):
    """Counts in `self.t`."""

    def __init__(self, params, lr=0.1):
        super().__init__(params, lr)
        self.t = 0

    def step(self, closure=None):
        self.t += 1
        descend(self, decayed(self.t))


class InGroup(Sgd):
    """Counts in each group, made at the first step, as pytorch-optimizer does."""

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            if "step" not in group:
                group["step"] = 0
            group["step"] += 1
            for p in with_grads(group):
                p.add_(p.grad, alpha=-group["lr"] * decayed(group["step"]))


class InStateOfNoParameter(Sgd):
    """Counts in `self.state["total_step"]`, as SPAM does."""

    def __init__(self, params, lr=0.1):
        super().__init__(params, lr)
        self.state["total_step"] = 0

    def step(self, closure=None):
        self.state["total_step"] += 1
        descend(self, decayed(self.state["total_step"]))


class InDictOfStateOfNoParameter(Sgd):
    """Counts in a dict that `self.state` holds under a name, as TRAC and EmoNavi do."""

    def step(self, closure=None):
        totals = self.state.setdefault("totals", {"step": 0, "product": 1.0})
        totals["step"] += 1
        totals["product"] *= 0.9
        descend(self, totals["product"])


class InStateOfParameter(Sgd):
    """Counts for each parameter in a Python number, as Adam did before torch 1.12."""

    def step(self, closure=None):
        for group in self.param_groups:
            for p in with_grads(group):
                state = self.state[p]
                if len(state) == 0:
                    state["step"] = 0
                    state["exp_avg_sq"] = torch.zeros_like(p.data)
                state["step"] += 1
                state["exp_avg_sq"].mul_(0.99).addcmul_(p.grad.data, p.grad.data, value=0.01)
                corrected = state["exp_avg_sq"] / (1 - 0.99 ** state["step"])
                p.data.addcdiv_(p.grad.data, corrected.sqrt().add_(1e-3), value=-0.1 * group["lr"])


class OnParameter(Sgd):
    """Counts in an attribute of each parameter."""

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in with_grads(group):
                p.steps_seen = getattr(p, "steps_seen", 0) + 1
                p.add_(p.grad, alpha=-group["lr"] * decayed(p.steps_seen))


class InDefaults(Sgd):
    """Counts in `self.defaults`."""

    def __init__(self, params, lr=0.1):
        super().__init__(params, lr)
        self.defaults["global_step"] = 0

    def step(self, closure=None):
        self.defaults["global_step"] += 1
        descend(self, decayed(self.defaults["global_step"]))


class InClass(Sgd):
    """Counts in an attribute of the class, for all its optimizers together; each `make` has a class of its own."""

    t = 0

    def step(self, closure=None):
        type(self).t += 1
        descend(self, decayed(self.t))


def make_in_class(params):
    """Return an optimizer of a new class."""
    return type("InClassAnew", (InClass,), {"t": 0})(params), nothing


def counting_rate():
    """Return a function that counts its calls in its closure."""
    t = 0

    def advance():
        nonlocal t
        t += 1
        return decayed(t)

    return advance


class InClosure(Sgd):
    """Counts in the closure of a function that it holds."""

    def __init__(self, params, lr=0.1):
        super().__init__(params, lr)
        self.advance = counting_rate()

    def step(self, closure=None):
        descend(self, self.advance())


class InGlobal(Sgd):
    """Counts in a global of its module, which `make` sets to zero."""

    @property
    def t(self):
        return STEPS_TAKEN

    def step(self, closure=None):
        global STEPS_TAKEN
        STEPS_TAKEN += 1
        descend(self, decayed(STEPS_TAKEN))


def make_in_global(params):
    """Return an optimizer that counts from zero."""
    global STEPS_TAKEN
    STEPS_TAKEN = 0
    return InGlobal(params), nothing


class InList(Sgd):
    """Counts in a list of one number, and appends each rate to another."""

    def __init__(self, params, lr=0.1):
        super().__init__(params, lr)
        self.t = [0]
        self.tracking_lr = []

    def step(self, closure=None):
        self.t[0] += 1
        self.tracking_lr.append(decayed(self.t[0]))
        descend(self, self.tracking_lr[-1])


class InDict(Sgd):
    """Counts in a dict of dicts."""

    def __init__(self, params, lr=0.1):
        super().__init__(params, lr)
        self.stats = {"steps": {"total": 0}}

    def step(self, closure=None):
        self.stats["steps"]["total"] += 1
        descend(self, decayed(self.stats["steps"]["total"]))


@dataclass
class Counts:
    """Counts of an optimizer."""

    n: int = 0
    rate: float = 1.0


class InDataclass(Sgd):
    """Counts in a dataclass."""

    def __init__(self, params, lr=0.1):
        super().__init__(params, lr)
        self.counts = Counts()

    def step(self, closure=None):
        self.counts.n += 1
        self.counts.rate *= 0.9
        descend(self, self.counts.rate)


class InNamedTuple(Sgd):
    """Counts in a namedtuple, replaced in each step."""

    def __init__(self, params, lr=0.1):
        super().__init__(params, lr)
        self.progress = Progress(0, None)

    def step(self, closure=None):
        self.progress = self.progress._replace(t=self.progress.t + 1)
        descend(self, decayed(self.progress.t))


class InProperty(Sgd):
    """Counts through a property with a private field."""

    def __init__(self, params, lr=0.1):
        super().__init__(params, lr)
        self._iterations = 0

    @property
    def iterations(self):
        return self._iterations

    @iterations.setter
    def iterations(self, value):
        self._iterations = int(value)

    def step(self, closure=None):
        self.iterations += 1
        descend(self, decayed(self.iterations))


class InSlots(Sgd):
    """Counts in a slot, which is not in `__dict__`."""

    __slots__ = ("t",)

    def __init__(self, params, lr=0.1):
        super().__init__(params, lr)
        self.t = 0

    def step(self, closure=None):
        self.t += 1
        descend(self, decayed(self.t))


class Clock:
    """A count that optimizers share."""

    def __init__(self):
        self.t = 0


class InSharedClock(Sgd):
    """Counts in an object that another optimizer counts in, too."""

    def __init__(self, params, clock, lr=0.1):
        super().__init__(params, lr)
        self.clock = clock

    def step(self, closure=None):
        self.clock.t += 1
        descend(self, decayed(self.clock.t))


def make_in_shared_clock(params):
    """Return one of two optimizers with one clock; the other steps after it."""
    clock = Clock()
    other = torch.nn.Parameter(torch.ones(2, device=params[0].device))
    other.grad = torch.ones_like(other)
    return InSharedClock(params, clock), InSharedClock([other], clock).step


class InIterator(Sgd):
    """Counts with `itertools.count`."""

    def __init__(self, params, lr=0.1):
        super().__init__(params, lr)
        self.numbers = itertools.count(1)

    def step(self, closure=None):
        descend(self, decayed(next(self.numbers)))


class InGenerator(Sgd):
    """Takes its rates from a running generator: a warm-up of 4 steps, then a decay."""

    def __init__(self, params, lr=0.1):
        super().__init__(params, lr)
        self.rates = self.schedule()

    def schedule(self):
        yield from (0.25, 0.5, 0.75, 1.0)
        for t in itertools.count(1):
            yield decayed(t)

    def step(self, closure=None):
        descend(self, next(self.rates))


class InNumpyArray(Sgd):
    """Counts in an array of numpy, in place."""

    def __init__(self, params, lr=0.1):
        super().__init__(params, lr)
        self.t = np.zeros(1, dtype=np.int64)

    def step(self, closure=None):
        self.t += 1
        descend(self, decayed(float(self.t[0])))


class InTensor(Sgd):
    """Counts in a tensor, in place or in a new tensor for each step."""

    def __init__(self, params, lr=0.1, device=None, in_place=True):
        super().__init__(params, lr)
        self.t = torch.zeros((), device=device)
        self.in_place = in_place

    @torch.no_grad()
    def step(self, closure=None):
        if self.in_place:
            self.t += 1
        else:
            self.t = self.t + 1
        descend(self, decayed(self.t))


class InTensorRead(InTensor):
    """Counts in a tensor of which each step reads the value, and halves the gradient in every third step."""

    @torch.no_grad()
    def step(self, closure=None):
        self.t += 1
        descend(self, 0.5 if int(self.t.item()) % 3 == 0 else 1.0)


class InTensorsOfState(Sgd):
    """Counts in a tensor of each parameter's state, on the parameter's device, as capturable optimizers do."""

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in with_grads(group):
                state = self.state[p]
                if "step" not in state:
                    state["step"] = torch.zeros((), device=p.device)
                state["step"].add_(1)
                p.sub_(p.grad * (group["lr"] * decayed(state["step"])))


COUNTERS = (
    Published("counter_on_self", plain(OnSelf), ("t",)),
    Published("counter_in_group", plain(InGroup), ("param_groups.0.step",)),
    Published("counter_in_state_of_no_parameter", plain(InStateOfNoParameter), ("state.total_step",)),
    Published("counter_in_dict_of_state", plain(InDictOfStateOfNoParameter), ("state.totals.step", "state.totals.product")),
    Published("counter_in_state_of_parameter", plain(InStateOfParameter)),
    Published("counter_on_parameter", plain(OnParameter), ("param_groups.0.params.0.steps_seen",)),
    Published("counter_in_defaults", plain(InDefaults), ("defaults.global_step",)),
    Published("counter_in_class", make_in_class, ("t",)),
    Published("counter_in_closure", plain(InClosure), ("advance.__closure__.0.cell_contents",)),
    Published("counter_in_global", make_in_global, ("t",)),
    Published("counter_in_list", plain(InList), ("t.0", "tracking_lr")),
    Published("counter_in_dict", plain(InDict), ("stats.steps.total",)),
    Published("counter_in_dataclass", plain(InDataclass), ("counts.n", "counts.rate")),
    Published("counter_in_namedtuple", plain(InNamedTuple), ("progress.t",)),
    Published("counter_in_property", plain(InProperty), ("iterations",)),
    Published("counter_in_slots", plain(InSlots), ("t",)),
    Published("counter_shared_by_two", make_in_shared_clock, ("clock.t",)),
    Published("counter_in_iterator", plain(InIterator)),
    Published("counter_in_generator", plain(InGenerator)),
    Published("counter_in_numpy_array", plain(InNumpyArray), ("t.0",)),
    Published("counter_tensor_in_place", plain(lambda params: InTensor(params, device=params[0].device)), ("t",)),
    Published(
        "counter_tensor_reassigned",
        plain(lambda params: InTensor(params, device=params[0].device, in_place=False)),
        ("t",),
    ),
    Published("counter_tensor_on_cpu", plain(InTensor), ("t",)),
    Published("counter_tensor_on_cpu_reassigned", plain(lambda params: InTensor(params, in_place=False)), ("t",)),
    Published("counter_tensor_read", plain(lambda params: InTensorRead(params, device=params[0].device)), ("t",)),
    Published("counter_tensors_in_state", plain(InTensorsOfState)),
)
