"""Trains random models with recorded steps, or recorded models, and with a loop, and looks whether both do the same.

python tests/fuzz/train_steps.py [--seed 0] [--programs 100] [--device cpu]
Values have to be equal after each call, bit for bit where no compiler is between: of results, parameters, buffers, gradients,
and of what the optimizer keeps. Prints each training that differs, made as short as it still differs; exits with 1 if there was
one.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch
from torch.utils._pytree import tree_flatten_with_path, tree_map

sys.path.insert(0, os.path.dirname(__file__))

import training_programs as made
from searching import search, without

from dynx import cudagraphs
from dynx.errors import UsageError


class Side:
    """A training: one of the two that are compared."""

    def __init__(self, program: made.Program, device: str) -> None:
        self.program, self.device = program, device
        self.model = program.model(device)
        self.called: Any = self.model
        self.optimizer = program.optimizer_of(self.model)
        self.scaler = torch.amp.GradScaler(device, init_scale=8.0) if program.has_scaler else None
        self.result: Any = None
        self.x = self._argument(0, made.ROWS)

    def _argument(self, number: int, rows: int) -> torch.Tensor:
        chance = torch.Generator().manual_seed(number)
        return torch.rand(rows, made.WIDTH, generator=chance).to(self.device)

    def loss(self, *args: Any, **kwargs: Any) -> Any:
        return made.LOSSES[self.program.loss](self.called, *args, **kwargs)

    def call(self, number: int, run: Callable[..., Any], close: Callable[[], None]) -> str:
        """Let happen what is to happen, and do a call; gives the error where there was one."""
        events = self.program.events[number]
        names = [each.rpartition(" ")[0] for each in events]
        try:
            for each in events:
                made.happen(each, self.model, self.optimizer)
            if "close" in names:
                close()
            if "same" not in names:
                self.x = self._argument(number, made.ROWS + ("rows" in names))
            torch.manual_seed(number)
            without = torch.no_grad() if "no_grad" in names else contextlib.nullcontext()
            with torch.autocast(self.device, torch.bfloat16, enabled="autocast" in names), without:
                self.result = run(self.x, weight=2.0 if "weight" in names else 1.0)
        except UsageError:
            raise
        except (RuntimeError, ValueError, TypeError, AssertionError, KeyError) as error:  # optimizers and scalers raise each
            return str(error)
        return ""

    def everything(self) -> dict[str, Any]:
        """Name all that can be seen."""
        named: dict[str, Any] = dict(self.model.state_dict())
        for name, each in self.model.named_parameters():
            named[f"gradient of {name}"] = each.grad
            kept = {} if self.optimizer is None else self.optimizer.state.get(each, {})
            named |= {f"{what} of {name}": value for what, value in kept.items()}
        if self.scaler is not None:
            named["scale"] = self.scaler.get_scale()
        return named | {f"result{path}": each for path, each in tree_flatten_with_path(self.result)[0]}


class Loop(Side):
    """As one would write it."""

    calls = 0

    def run(self, *args: Any, **kwargs: Any) -> Any:
        program, params = self.program, list(self.model.parameters())
        for each in params:
            if self.calls % program.accumulate == 0:
                each.grad = None
            if program.accumulate > 1 and each.requires_grad and each.grad is None:
                each.grad = torch.zeros_like(each)
        self.calls += 1
        with torch.enable_grad():
            result = self.loss(*args, **kwargs)
            loss = result[0] if isinstance(result, tuple) else result
            (loss if self.scaler is None else self.scaler.scale(loss)).backward()
        if self.calls % program.accumulate == 0:
            self._end(params)
        return tree_map(lambda each: each.detach() if isinstance(each, torch.Tensor) else each, result)

    def run_without_gradients(self, *args: Any, **kwargs: Any) -> Any:
        with torch.no_grad():
            return self.loss(*args, **kwargs)

    def _end(self, params: list[torch.Tensor]) -> None:
        if self.program.clip is not None:
            if self.scaler is not None:
                self.scaler.unscale_(self.optimizer)
            torch.nn.utils.clip_grad_norm_(params, self.program.clip)
        if self.scaler is not None:
            self.scaler.step(self.optimizer)
            self.scaler.update()
        elif self.optimizer is not None:
            self.optimizer.step()


def _far(program: made.Program) -> float:
    """Give how far values may be apart: AOTAutograd takes other operators than eager for some, and rounds at other places."""
    is_rounded = any(each.startswith("autocast") for events in program.events for each in events)
    return 0 if program.way != "backend" else 0.05 if is_rounded else 0.001


def difference(ours: Side, theirs: Side, far: float) -> str:
    """Say how two sides differ by more than so much; empty where they do not."""
    mine, other = ours.everything(), theirs.everything()
    if list(mine) != list(other):
        return f"there is {sorted(set(mine) ^ set(other))} on one side only"
    for name, one in mine.items():
        two = other[name]
        if not isinstance(one, torch.Tensor) or not isinstance(two, torch.Tensor):
            if one is not two and one != two:
                return f"{name} is {one}, not {two}"
        elif (one.shape, one.stride(), one.dtype) != (two.shape, two.stride(), two.dtype):
            return f"{name} is {tuple(one.shape)} {one.dtype}, not {tuple(two.shape)} {two.dtype}"
        elif not _are_equal(torch.nan_to_num(one.detach(), 7e9), torch.nan_to_num(two.detach(), 7e9), far):
            return f"{name} is {one.tolist()}, not {two.tolist()}"
    return ""


def _are_equal(one: torch.Tensor, two: torch.Tensor, far: float) -> bool:
    return torch.allclose(one, two, rtol=far, atol=far) if far else torch.equal(one, two)


def tried(program: made.Program, device: str) -> str:
    """Give how a recorded training differs from a loop; empty where it does not."""
    torch._dynamo.reset()
    ours, theirs = Loop(program, device), Loop(program, device)
    run = _recorded(program, ours, device)
    theirs_run = theirs.run_without_gradients if program.way == "fast path" else theirs.run
    for number in range(len(program.events)):
        theirs_failed = theirs.call(number, theirs_run, lambda: None)
        ours_failed = ours.call(number, run, getattr(run, "close", lambda: None))
        if theirs_failed:
            return ""  # what a failed call leaves is not compared
        if ours_failed:
            return f"call {number}: ours raised {ours_failed}"
        if found := difference(ours, theirs, _far(program)):
            return f"call {number}: {found}"
    return ""


def _recorded(program: made.Program, side: Loop, device: str) -> Callable[..., Any]:
    """Give what does a call of a training, with recordings."""
    way = program.way
    config = cudagraphs.Config(
        runtime="emulator" if device == "cpu" else "cuda",
        outputs="clone" if "place" in way or "graphed" in way else program.outputs,
        gradients="in_place" if "place" in way else "autograd",
    )
    if way == "step":
        return cudagraphs.train_step(
            side.loss,
            side.model.parameters(),
            optimizer=side.optimizer,
            scaler=side.scaler,
            clip_grad_norm=program.clip,
            accumulate=program.accumulate,
            config=config,
        )
    if way == "fast path":
        return cudagraphs.fast_path(side.loss, config=config)
    if way in ("backend", "backend in place"):
        side.called = torch.compile(side.model, backend=cudagraphs.backend(config))
        return side.run
    before = {name: each.clone() for name, each in side.model.state_dict().items()}
    cudagraphs.graphed(side.model, (side.x,), config=config, allow_unused_input=True, warmup=1)
    side.model.load_state_dict(before)
    return side.run


def _shorter(program: made.Program) -> Iterator[made.Program]:
    for index in range(len(program.events)):
        yield replace(program, events=without(program.events, index))
    for index, events in enumerate(program.events):
        for number in range(len(events)):
            fewer = (*program.events[:index], without(events, number), *program.events[index + 1 :])
            yield replace(program, events=fewer)
    for index in range(len(program.pieces)):
        yield replace(program, pieces=without(program.pieces, index))
    plain: dict[str, Any] = {"is_tied": False, "has_scaler": False, "clip": None, "loss": "square", "outputs": "clone"}
    for name, value in plain.items() | {("accumulate", 1), ("optimizer", "SGD"), ("has_lr_tensor", False), ("is_fused", False)}:
        if getattr(program, name) != value and (name != "is_fused" or not program.has_scaler):
            yield replace(program, **{name: value})


if __name__ == "__main__":
    sys.exit(search(lambda chance, device: made.program(chance), tried, _shorter, str, "trainings"))
