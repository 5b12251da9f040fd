"""Random models and optimizers, and random events between the steps of a training."""

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


class CountsCalls(nn.Module):
    """Mutates a buffer, and stores its last result in an attribute."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(()))
        self.scale = nn.Parameter(torch.ones(WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen.add_(1)
        self.last = x * self.scale
        return self.last + self.seen.sin()


class AssignsBuffer(nn.Module):
    """Rebinds its buffer to a new tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.mean = self.mean * 0.9 + x.detach().mean(0) * 0.1
        return x - self.mean


class Residual(nn.Module):
    """Adds the output of a layer to its input."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.layer(x).tanh()


class Checkpointed(Residual):
    """Recomputes its layer in the backward pass."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return checkpoint(super().forward, x, use_reentrant=False)


class OnlyInTraining(Residual):
    """Skips its layer in eval mode."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x) if self.training else x


class Noise(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + torch.rand_like(x)


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(x).chunk(3, -1)
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
    "counts calls": CountsCalls,
    "assigns buffer": AssignsBuffer,
    "residual": Residual,
    "checkpointed": Checkpointed,
    "only in training": OnlyInTraining,
    "noise": Noise,
    "attention": Attention,
}


class Model(nn.Module):
    """Pieces in sequence; `unused` is in no loss, and `late` is added to the optimizer later."""

    def __init__(self, pieces: tuple[str, ...], *, is_tied: bool) -> None:
        super().__init__()
        self.pieces = nn.Sequential(*(PIECES[name]() for name in pieces))
        self.out = nn.Linear(WIDTH, WIDTH)
        self.unused = nn.Linear(2, 2)
        self.late = nn.Parameter(torch.ones(WIDTH))
        if is_tied:
            for piece in self.pieces:
                if type(piece) is nn.Linear and piece.weight.requires_grad:
                    self.out.weight = piece.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.out(self.pieces(x.clone())) * self.late
        return result


def square(model: nn.Module, x: torch.Tensor, weight: float = 1.0) -> Any:
    return model(x).square().mean() * weight


def with_auxiliary_outputs(model: nn.Module, x: torch.Tensor, weight: float = 1.0) -> Any:
    out = model(x)
    return out.abs().sum() * weight, {"out": out, "rows": len(x)}, model.late


def cross_entropy(model: nn.Module, x: torch.Tensor, weight: float = 1.0) -> Any:
    return nn.functional.cross_entropy(model(x), x.argmax(1)) * weight


LOSSES = {loss.__name__: loss for loss in (square, with_auxiliary_outputs, cross_entropy)}

_O = torch.optim
OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "SGD": _O.SGD,
    "momentum": lambda params, **options: _O.SGD(params, momentum=0.9, nesterov=True, **options),
    "Adam": _O.Adam,
    "AdamW": lambda params, **options: _O.AdamW(params, amsgrad=True, **options),
    "maximize": lambda params, **options: _O.Adam(params, maximize=True, weight_decay=0.1, **options),
    "RMSprop": lambda params, **options: _O.RMSprop(params, momentum=0.5, centered=True, **options),
    "Adagrad": lambda params, **options: _O.Adagrad(params, **{k: v for k, v in options.items() if k != "capturable"}),
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
    """A training; `events` holds the events before each of its calls."""

    mode: str  # the function of dynx.cudagraphs that captures it
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
        params = [param for param in model.parameters() if param is not model.late]
        on_cuda = {"capturable": True} if device.type == "cuda" and self.optimizer in _COUNTS_IN_TENSORS else {}
        options = {"fused": True} if self.is_fused else on_cuda
        lr = torch.tensor(0.01, device=device) if self.has_lr_tensor else 0.01
        return OPTIMIZERS[self.optimizer](params, lr=lr, **options)


MODES = ("step", "step", "graphed", "graphed in place", "backend", "backend in place", "fast path")
EVENTS = (
    "rows",
    "weight",
    "lr",
    "decay",
    "freeze",
    "unfreeze",
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


def random_program(rng: random.Random) -> Program:
    """Return a training of five to twelve calls, with few events between them."""
    optimizer = rng.choice((*OPTIMIZERS, ""))
    is_fused = optimizer in _MAY_BE_FUSED and rng.random() < 0.4
    accumulate = rng.choice((1, 1, 2, 3))
    calls = rng.randint(5, 12)
    event_rate = rng.choice((0.05, 0.2))
    return Program(
        mode=rng.choice(MODES),
        pieces=tuple(rng.choices(list(PIECES), k=rng.randint(1, 4))),
        is_tied=rng.random() < 0.2,
        loss=rng.choice(list(LOSSES)),
        optimizer=optimizer,
        has_lr_tensor=bool(optimizer) and (is_fused or optimizer in _COUNTS_IN_TENSORS) and rng.random() < 0.3,
        is_fused=is_fused,
        clip=rng.choice((None, None, 0.1)),
        accumulate=accumulate,
        has_scaler=is_fused and rng.random() < 0.5,
        outputs=rng.choice(("clone", "alias", "static")),
        events=tuple(
            tuple(f"{rng.choice(EVENTS)} {rng.randrange(6)}" for _ in range(2) if rng.random() < event_rate)
            for _ in range(calls)
        ),
    )


def apply_event(event: str, model: Model, optimizer: torch.optim.Optimizer | None) -> None:
    """Apply an event to a model and its optimizer; events that concern the call itself are left to the caller."""
    event_name, _, number = event.rpartition(" ")
    params, layers, buffers = list(model.parameters()), list(model.children()), list(model.buffers())
    param = params[int(number) % len(params)]
    with torch.no_grad():
        if event_name in ("freeze", "unfreeze"):
            layers[int(number) % len(layers)].requires_grad_(event_name == "unfreeze")
        elif event_name in ("eval", "train"):
            model.train(event_name == "train")
        elif event_name == "load model":
            model.load_state_dict({name: tensor * 0.5 for name, tensor in model.state_dict().items()})
        elif event_name == "move":
            param.data = param.data.clone()
        elif event_name == "scale":
            param.mul_(0.5)
        elif event_name == "buffer" and buffers:
            buffers[int(number) % len(buffers)].fill_(1)
        elif event_name == "forget":
            param.grad = None
        elif event_name == "forward":
            torch.manual_seed(int(number))
            model(torch.ones(ROWS, WIDTH, device=param.device))
    if optimizer is None:
        return
    group = optimizer.param_groups[0]
    if event_name == "lr" and isinstance(group["lr"], torch.Tensor):
        group["lr"].mul_(0.5)
    elif event_name in ("lr", "decay"):
        name = "lr" if event_name == "lr" else "weight_decay"
        group[name] = group.get(name, 0.0) * 0.5 + 0.01 * (event_name == "decay")
    elif event_name == "load optimizer":
        optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    elif event_name == "clear state":
        optimizer.state.clear()
    elif event_name == "forget state":
        optimizer.state.pop(param, None)
    elif event_name in ("zero", "zero to none"):
        optimizer.zero_grad(set_to_none=event_name != "zero")
    elif event_name == "group" and len(optimizer.param_groups) == 1:
        optimizer.add_param_group({"params": [model.late]})
