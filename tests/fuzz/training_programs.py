"""Random models, optimizers and what happens to them between two steps of a training."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn.utils import parametrizations
from torch.utils.checkpoint import checkpoint

WIDTH, ROWS = 6, 4


class Counts(nn.Module):
    """Changes a buffer, and keeps what it computed last."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(()))
        self.scale = nn.Parameter(torch.ones(WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen.add_(1)
        self.last = x * self.scale
        return self.last + self.seen.sin()


class Assigns(nn.Module):
    """Puts another buffer in the place of the one it has."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.mean = self.mean * 0.9 + x.detach().mean(0) * 0.1
        return x - self.mean


class Around(nn.Module):
    """Adds what a layer gives to what it was given."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.layer(x).tanh()


class Again(Around):
    """Computes its layer once more in the backward pass."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return checkpoint(super().forward, x, use_reentrant=False)


class WhileTraining(Around):
    """Uses its layer in training only."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x) if self.training else x


class Noise(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + torch.rand_like(x)


class Attends(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.parts = nn.Linear(WIDTH, 3 * WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.parts(x).chunk(3, -1)
        return nn.functional.scaled_dot_product_attention(q[None], k[None], v[None])[0]


PIECES: dict[str, Callable[[], nn.Module]] = {
    "linear": lambda: nn.Linear(WIDTH, WIDTH),
    "no bias": lambda: nn.Linear(WIDTH, WIDTH, bias=False),
    "frozen": lambda: nn.Linear(WIDTH, WIDTH).requires_grad_(False),
    "weight_norm": lambda: parametrizations.weight_norm(nn.Linear(WIDTH, WIDTH)),
    "spectral_norm": lambda: parametrizations.spectral_norm(nn.Linear(WIDTH, WIDTH)),
    "batch_norm": lambda: nn.BatchNorm1d(WIDTH),
    "layer_norm": lambda: nn.LayerNorm(WIDTH),
    "relu": lambda: nn.ReLU(inplace=True),
    "prelu": nn.PReLU,
    "dropout": lambda: nn.Dropout(0.5),
    "counts": Counts,
    "assigns": Assigns,
    "around": Around,
    "again": Again,
    "while training": WhileTraining,
    "noise": Noise,
    "attends": Attends,
}


class Model(nn.Module):
    """Pieces, one after the other, with one that no loss uses and one that an optimizer gets later."""

    def __init__(self, pieces: tuple[str, ...], *, is_tied: bool) -> None:
        super().__init__()
        self.pieces = nn.Sequential(*(PIECES[each]() for each in pieces))
        self.out = nn.Linear(WIDTH, WIDTH)
        self.unused = nn.Linear(2, 2)
        self.late = nn.Parameter(torch.ones(WIDTH))
        if is_tied:
            for each in self.pieces:
                if type(each) is nn.Linear and each.weight.requires_grad:
                    self.out.weight = each.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.out(self.pieces(x.clone())) * self.late
        return result


def square(model: nn.Module, x: torch.Tensor, weight: float = 1.0) -> Any:
    return model(x).square().mean() * weight


def with_more(model: nn.Module, x: torch.Tensor, weight: float = 1.0) -> Any:
    out = model(x)
    return out.abs().sum() * weight, {"out": out, "rows": len(x)}, model.late


def cross_entropy(model: nn.Module, x: torch.Tensor, weight: float = 1.0) -> Any:
    return nn.functional.cross_entropy(model(x), x.argmax(1)) * weight


LOSSES = {each.__name__: each for each in (square, with_more, cross_entropy)}

_O = torch.optim
OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "SGD": _O.SGD,
    "momentum": lambda params, **more: _O.SGD(params, momentum=0.9, nesterov=True, **more),
    "Adam": _O.Adam,
    "AdamW": lambda params, **more: _O.AdamW(params, amsgrad=True, **more),
    "maximize": lambda params, **more: _O.Adam(params, maximize=True, weight_decay=0.1, **more),
    "RMSprop": lambda params, **more: _O.RMSprop(params, momentum=0.5, centered=True, **more),
    "Adagrad": lambda params, **more: _O.Adagrad(params, **{each: more[each] for each in more if each != "capturable"}),
    "Adadelta": _O.Adadelta,
    "NAdam": _O.NAdam,
    "RAdam": _O.RAdam,
    "Adamax": _O.Adamax,
    "ASGD": _O.ASGD,
    "Rprop": _O.Rprop,
}
_COUNTS_IN_TENSORS = ("Adam", "AdamW", "maximize", "RMSprop", "Adadelta", "NAdam", "RAdam", "Adamax", "ASGD", "Rprop")
_MAY_BE_FUSED = ("SGD", "momentum", "Adam", "AdamW")


@dataclass(frozen=True)
class Program:
    """A training; `events` are what happens before each of its calls."""

    way: str  # what is recorded
    pieces: tuple[str, ...]
    is_tied: bool
    loss: str
    optimizer: str
    has_lr_tensor: bool
    is_fused: bool
    clip: float | None
    accumulate: int
    has_scaler: bool
    outputs: str
    events: tuple[tuple[str, ...], ...]

    def model(self, device: str) -> Model:
        torch.manual_seed(0)
        return Model(self.pieces, is_tied=self.is_tied).to(device)

    def optimizer_of(self, model: Model) -> torch.optim.Optimizer | None:
        if not self.optimizer:
            return None
        device = model.late.device
        given = [each for each in model.parameters() if each is not model.late]
        on_cuda = {"capturable": True} if device.type == "cuda" and self.optimizer in _COUNTS_IN_TENSORS else {}
        how = {"fused": True} if self.is_fused else on_cuda
        return OPTIMIZERS[self.optimizer](given, lr=torch.tensor(0.01, device=device) if self.has_lr_tensor else 0.01, **how)


WAYS = ("step", "step", "graphed", "graphed in place", "backend", "backend in place", "fast path")
EVENTS = (
    "rows",
    "weight",
    "lr",
    "decay",
    "freeze",
    "thaw",
    "eval",
    "train",
    "load model",
    "load optimizer",
    "clear state",
    "forget state",
    "move",
    "scale",
    "buffer",
    "zero",
    "zero to none",
    "forget",
    "forward",
    "group",
    "autocast",
    "no_grad",
    "close",
    "same",
)


def program(chance: random.Random) -> Program:
    """Make a training of up to twelve calls, in which most are like the one before."""
    optimizer = chance.choice((*OPTIMIZERS, ""))
    is_fused = optimizer in _MAY_BE_FUSED and chance.random() < 0.4
    accumulate = chance.choice((1, 1, 2, 3))
    calls = chance.randint(5, 12)
    busy = chance.choice((0.05, 0.2))
    return Program(
        way=chance.choice(WAYS),
        pieces=tuple(chance.choices(list(PIECES), k=chance.randint(1, 4))),
        is_tied=chance.random() < 0.2,
        loss=chance.choice(list(LOSSES)),
        optimizer=optimizer,
        has_lr_tensor=bool(optimizer) and (is_fused or optimizer in _COUNTS_IN_TENSORS) and chance.random() < 0.3,
        is_fused=is_fused,
        clip=chance.choice((None, None, 0.1)),
        accumulate=accumulate,
        has_scaler=is_fused and chance.random() < 0.5,
        outputs=chance.choice(("clone", "alias", "static")),
        events=tuple(
            tuple(f"{chance.choice(EVENTS)} {chance.randrange(6)}" for _ in range(2) if chance.random() < busy)
            for _ in range(calls)
        ),
    )


def happen(event: str, model: Model, optimizer: torch.optim.Optimizer | None) -> None:
    """Do to a model and its optimizer what an event says; what concerns the call itself is left to the caller."""
    what, _, number = event.rpartition(" ")
    params, layers, buffers = list(model.parameters()), list(model.children()), list(model.buffers())
    chosen = params[int(number) % len(params)]
    with torch.no_grad():
        if what in ("freeze", "thaw"):
            layers[int(number) % len(layers)].requires_grad_(what == "thaw")
        elif what in ("eval", "train"):
            model.train(what == "train")
        elif what == "load model":
            model.load_state_dict({name: each * 0.5 for name, each in model.state_dict().items()})
        elif what == "move":
            chosen.data = chosen.data.clone()
        elif what == "scale":
            chosen.mul_(0.5)
        elif what == "buffer" and buffers:
            buffers[int(number) % len(buffers)].fill_(1)
        elif what == "forget":
            chosen.grad = None
        elif what == "forward":
            torch.manual_seed(int(number))
            model(torch.ones(ROWS, WIDTH, device=chosen.device))
    if optimizer is None:
        return
    group = optimizer.param_groups[0]
    if what == "lr" and isinstance(group["lr"], torch.Tensor):
        group["lr"].mul_(0.5)
    elif what in ("lr", "decay"):
        name = "lr" if what == "lr" else "weight_decay"
        group[name] = group.get(name, 0.0) * 0.5 + 0.01 * (what == "decay")
    elif what == "load optimizer":
        optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    elif what == "clear state":
        optimizer.state.clear()
    elif what == "forget state":
        optimizer.state.pop(chosen, None)
    elif what in ("zero", "zero to none"):
        optimizer.zero_grad(set_to_none=what != "zero")
    elif what == "group" and len(optimizer.param_groups) == 1:
        optimizer.add_param_group({"params": [model.late]})
