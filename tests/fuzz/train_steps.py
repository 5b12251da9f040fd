"""Compares random trainings with CUDA graphs against an eager training loop.

python tests/fuzz/train_steps.py [--seed 0] [--programs 100] [--device cpu]
After each call results, parameters, buffers, gradients and optimizer state have to be equal: bit for bit, unless AOTAutograd
decomposes operators. Prints each training that differs, minimized; exits with 1 if there is one.
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

import training_programs as programs
from searching import search, without

from dynx import cudagraphs
from dynx.errors import UsageError


class Side:
    """One of the two trainings that are compared."""

    def __init__(self, program: programs.Program, device: str) -> None:
        self.program, self.device = program, device
        self.model = program.model(device)
        self.called: Any = self.model
        self.optimizer = program.optimizer_of(self.model)
        self.scaler = torch.amp.GradScaler(device, init_scale=8.0) if program.has_scaler else None
        self.result: Any = None
        self.x = self._argument(0, programs.ROWS)

    def _argument(self, number: int, rows: int) -> torch.Tensor:
        rng = torch.Generator().manual_seed(number)
        return torch.rand(rows, programs.WIDTH, generator=rng).to(self.device)

    def loss(self, *args: Any, **kwargs: Any) -> Any:
        return programs.LOSSES[self.program.loss](self.called, *args, **kwargs)

    def call(self, number: int, run: Callable[..., Any], close: Callable[[], None]) -> str:
        """Apply the events of a call, and run it; return the error message, empty without an error."""
        events = self.program.events[number]
        names = [event.rpartition(" ")[0] for event in events]
        try:
            for event in events:
                programs.apply_event(event, self.model, self.optimizer)
            if "close" in names:
                close()
            if "same" not in names:
                self.x = self._argument(number, programs.ROWS + ("rows" in names))
            torch.manual_seed(number)
            without = torch.no_grad() if "no_grad" in names else contextlib.nullcontext()
            with torch.autocast(self.device, torch.bfloat16, enabled="autocast" in names), without:
                self.result = run(self.x, weight=2.0 if "weight" in names else 1.0)
        except UsageError:
            raise
        except (
            RuntimeError,
            ValueError,
            TypeError,
            AssertionError,
            KeyError,
        ) as error:  # optimizers and scalers raise all of these
            return str(error)
        return ""

    def visible_state(self) -> dict[str, Any]:
        """Return all state that a user can see, by name."""
        named: dict[str, Any] = dict(self.model.state_dict())
        for name, param in self.model.named_parameters():
            named[f"gradient of {name}"] = param.grad
            optimizer_state = {} if self.optimizer is None else self.optimizer.state.get(param, {})
            named |= {f"{key} of {name}": value for key, value in optimizer_state.items()}
        if self.scaler is not None:
            named["scale"] = self.scaler.get_scale()
        return named | {f"result{path}": leaf for path, leaf in tree_flatten_with_path(self.result)[0]}


class Loop(Side):
    """An eager training loop, as a user would write it."""

    calls = 0

    def run(self, *args: Any, **kwargs: Any) -> Any:
        program, params = self.program, list(self.model.parameters())
        for param in params:
            if self.calls % program.accumulate == 0:
                param.grad = None
            if program.accumulate > 1 and param.requires_grad and param.grad is None:
                param.grad = torch.zeros_like(param)
        self.calls += 1
        with torch.enable_grad():
            result = self.loss(*args, **kwargs)
            loss = result[0] if isinstance(result, tuple) else result
            (loss if self.scaler is None else self.scaler.scale(loss)).backward()
        if self.calls % program.accumulate == 0:
            self._update(params)
        return tree_map(lambda leaf: leaf.detach() if isinstance(leaf, torch.Tensor) else leaf, result)

    def run_without_gradients(self, *args: Any, **kwargs: Any) -> Any:
        with torch.no_grad():
            return self.loss(*args, **kwargs)

    def _update(self, params: list[torch.Tensor]) -> None:
        if self.program.clip is not None:
            if self.scaler is not None:
                self.scaler.unscale_(self.optimizer)
            torch.nn.utils.clip_grad_norm_(params, self.program.clip)
        if self.scaler is not None:
            self.scaler.step(self.optimizer)
            self.scaler.update()
        elif self.optimizer is not None:
            self.optimizer.step()


def _tolerance(program: programs.Program) -> float:
    """Return the tolerance for differences: AOTAutograd decomposes operators, which rounds differently from eager."""
    is_rounded = any(event.startswith("autocast") for events in program.events for event in events)
    return 0 if program.mode != "backend" else 0.05 if is_rounded else 0.001


def difference(captured: Side, eager: Side, tolerance: float) -> str:
    """Return how two trainings differ by more than the tolerance, empty if they do not."""
    captured_state, eager_state = captured.visible_state(), eager.visible_state()
    if list(captured_state) != list(eager_state):
        return f"only one side has {sorted(set(captured_state) ^ set(eager_state))}"
    for name, a in captured_state.items():
        b = eager_state[name]
        if not isinstance(a, torch.Tensor) or not isinstance(b, torch.Tensor):
            if a is not b and a != b:
                return f"{name} is {a}, not {b}"
        elif (a.shape, a.stride(), a.dtype) != (b.shape, b.stride(), b.dtype):
            return f"{name} is {tuple(a.shape)} {a.dtype}, not {tuple(b.shape)} {b.dtype}"
        elif not _are_equal(torch.nan_to_num(a.detach(), 7e9), torch.nan_to_num(b.detach(), 7e9), tolerance):
            return f"{name} is {a.tolist()}, not {b.tolist()}"
    return ""


def _are_equal(a: torch.Tensor, b: torch.Tensor, tolerance: float) -> bool:
    return torch.allclose(a, b, rtol=tolerance, atol=tolerance) if tolerance else torch.equal(a, b)


def disagreement(program: programs.Program, device: str) -> str:
    """Return how a captured training differs from the eager loop, empty if it does not."""
    torch._dynamo.reset()
    captured, eager = Loop(program, device), Loop(program, device)
    run = _captured_run(program, captured, device)
    eager_run = eager.run_without_gradients if program.mode == "fast path" else eager.run
    for number in range(len(program.events)):
        eager_error = eager.call(number, eager_run, lambda: None)
        captured_error = captured.call(number, run, getattr(run, "close", lambda: None))
        if eager_error:
            return ""  # the state after a failed call is not compared
        if captured_error:
            return f"call {number}: captured raised {captured_error}"
        if message := difference(captured, eager, _tolerance(program)):
            return f"call {number}: {message}"
    return ""


def _captured_run(program: programs.Program, side: Loop, device: str) -> Callable[..., Any]:
    """Return the function that runs a call of the training with CUDA graphs."""
    mode = program.mode
    config = cudagraphs.Config(
        runtime="emulator" if device == "cpu" else "cuda",
        outputs="clone" if "place" in mode or "graphed" in mode else program.outputs,
        gradients="in_place" if "place" in mode else "autograd",
    )
    if mode == "step":
        return cudagraphs.train_step(
            side.loss,
            side.model.parameters(),
            optimizer=side.optimizer,
            scaler=side.scaler,
            clip_grad_norm=program.clip,
            accumulate=program.accumulate,
            config=config,
        )
    if mode == "fast path":
        return cudagraphs.fast_path(side.loss, config=config)
    if mode in ("backend", "backend in place"):
        side.called = torch.compile(side.model, backend=cudagraphs.backend(config))
        return side.run
    before = {name: tensor.clone() for name, tensor in side.model.state_dict().items()}
    cudagraphs.graphed(side.model, (side.x,), config=config, allow_unused_input=True, warmup=1)
    side.model.load_state_dict(before)
    return side.run


def _simpler(program: programs.Program) -> Iterator[programs.Program]:
    for index in range(len(program.events)):
        yield replace(program, events=without(program.events, index))
    for index, events in enumerate(program.events):
        for number in range(len(events)):
            simplified = (*program.events[:index], without(events, number), *program.events[index + 1 :])
            yield replace(program, events=simplified)
    for index in range(len(program.pieces)):
        yield replace(program, pieces=without(program.pieces, index))
    plain: dict[str, Any] = {"is_tied": False, "has_scaler": False, "clip": None, "loss": "square", "outputs": "clone"}
    for name, value in plain.items() | {("accumulate", 1), ("optimizer", "SGD"), ("has_lr_tensor", False), ("is_fused", False)}:
        if getattr(program, name) != value and (name != "is_fused" or not program.has_scaler):
            yield replace(program, **{name: value})


if __name__ == "__main__":
    sys.exit(search(lambda rng, device: programs.random_program(rng), disagreement, _simpler, str, "trainings"))
