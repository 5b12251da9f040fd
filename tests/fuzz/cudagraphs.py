"""Compares random modules run with CUDA graphs against the same modules without.

python tests/fuzz/cudagraphs.py [--seed 0] [--programs 100] [--device cpu]
Results, results of earlier calls, arguments, parameters, buffers and gradients have to be equal bit for bit; results alias
each other, arguments and parameters in both runs or in neither. Prints each program that differs, minimized; exits with 1 if
there is one.
"""

from __future__ import annotations

import contextlib
import os
import random
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations
from operator import attrgetter
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

sys.path.insert(0, os.path.dirname(__file__))

import graph_programs as programs
from searching import search, without

from dynx import cudagraphs

_MODES = {"grad": contextlib.nullcontext, "no_grad": torch.no_grad, "inference": torch.inference_mode}
_OPTIONS = {
    "inputs": ("auto", "copy", "memcpy_node", "patch"),
    "outputs": ("clone", "clone", "alias"),
    "params": ("rerecord", "rerecord", "patch"),
    "gradients": ("autograd", "autograd", "in_place"),
    "partition": (True, True, False),
    "max_recordings": (2, 16),
    "on_limit": ("eager", "lru"),
}


class Side:
    """One of the two runs that are compared: a module, its arguments and its results."""

    def __init__(self, program: programs.Program, device: str, run_of: Any) -> None:
        self.device = device
        self.module = program.module(device)
        self.run = run_of(self.module)
        self.arguments: list[torch.Tensor] = []
        self.outputs: list[list[torch.Tensor]] = []  # of each call
        self.pending: list[list[torch.Tensor]] = []  # results whose backward pass is still to run

    def call(self, call: programs.Call) -> str:
        """Call the module and take the actions that follow; return the error message, empty without an error."""
        before, self.arguments = self.arguments, []
        for number, kind in enumerate(call.arguments):
            self.arguments.append(before[number] if kind == "kept" and before else self._argument(kind, number, call))
        self.module.train("eval" not in call.actions)
        autocast = torch.autocast(self.device, torch.bfloat16, enabled="autocast" in call.actions)
        torch.manual_seed(call.seed)
        try:
            with _MODES[call.mode](), autocast:
                result = self.run(*self.arguments)
            self.outputs.append([leaf for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor)])
            for action in call.actions:
                self._act(action, call.mode)
        except (RuntimeError, AssertionError, IndexError) as error:  # AOTAutograd uses assertions
            return str(error)
        return ""

    def _act(self, action: str, mode: str) -> None:
        results, weight = self.outputs[-1], self.module.weight
        if action in ("backward", "wait"):
            self.pending.append(results)
        if action == "backward":
            for outputs in reversed(self.pending):
                differentiable = [output for output in outputs if output.requires_grad]
                if differentiable:
                    sum(output.sum().double() for output in differentiable).backward()
            self.pending.clear()
        with torch.no_grad():
            is_inference = mode == "inference" or any(result.is_inference() for result in results)
            if action == "change result" and not is_inference:  # outputs="alias" returns normal tensors in inference mode
                results[0].add_(1)
            elif action == "change weight":
                weight.mul_(1.5)
            elif action == "move weight":
                weight.data = weight.data.clone()
            elif action == "drop":
                del self.outputs[:-1]
            elif action == "step":
                for param in self.module.parameters():
                    if param.grad is not None:
                        param.sub_(param.grad)
                        param.grad = None

    def _argument(self, kind: str, number: int, call: programs.Call) -> torch.Tensor:
        rng = torch.Generator().manual_seed(100 * call.seed + number)
        fresh = torch.rand(call.rows, programs.COLUMNS, generator=rng).to(self.device)
        if kind == "first" and number > 0:
            return self.arguments[0]
        if kind == "slice":
            return torch.cat([fresh, fresh])[2:][
                : call.rows
            ]  # aligned: kernels for misaligned memory may draw other random numbers
        if kind == "wide":
            return torch.cat([fresh, fresh], 1)[:, : programs.COLUMNS]
        if kind == "transposed":
            return fresh.t().contiguous().t()
        if kind == "result":
            same_shape = [output for output in (self.outputs[-1] if self.outputs else ()) if output.shape == fresh.shape]
            return same_shape[0].detach() if same_shape else fresh
        return fresh.requires_grad_(kind == "needs")

    def visible_state(self, *, all_calls: bool) -> dict[str, torch.Tensor]:
        """Return all tensors that a user can see, by name."""
        named = {**dict(self.module.named_parameters()), **dict(self.module.named_buffers())}
        named |= {f"argument {index}": tensor for index, tensor in enumerate(self.arguments)}
        gradients = {f"gradient of {name}": tensor.grad for name, tensor in named.items() if tensor.grad is not None}
        for back, results in enumerate(reversed(self.outputs if all_calls else self.outputs[-1:])):
            named |= {f"result {index}, {back} calls ago": result for index, result in enumerate(results)}
        return named | gradients


def difference(captured: Side, eager: Side, *, all_calls: bool, is_compiled: bool) -> str:
    """Return how two runs differ, empty if they do not.

    Aliasing is compared for compiled graphs only: other functions return copies instead of views and arguments.
    """
    captured_state, eager_state = (side.visible_state(all_calls=all_calls) for side in (captured, eager))
    if list(captured_state) != list(eager_state):
        return f"only one side has {sorted(set(captured_state) ^ set(eager_state))}"
    for name, a in captured_state.items():
        b = eager_state[name]
        if _layout(a) != _layout(b) or (is_compiled and (a.grad_fn is None) != (b.grad_fn is None)):
            return f"{name} is {_layout(a)} {a.requires_grad}, not {_layout(b)} {b.requires_grad}"
        if not torch.equal(torch.nan_to_num(a.detach(), 7e9), torch.nan_to_num(b.detach(), 7e9)):
            return f"{name} is {a.tolist()}, not {b.tolist()}"
    for a, b in combinations(captured_state, 2) if is_compiled else ():
        if captured_state[a].grad_fn is not None and captured_state[b].grad_fn is not None:
            continue  # differentiable outputs are copied separately, since autograd would not know of the overlap
        if _overlap(captured_state[a], captured_state[b]) != _overlap(eager_state[a], eager_state[b]):
            side = "captured" if _overlap(captured_state[a], captured_state[b]) else "eager"
            return f"{a} and {b} share memory only in the {side} run"
    return ""


def _is_usable(side: Side) -> bool:
    try:
        list(map(attrgetter("grad_fn"), side.visible_state(all_calls=True).values()))
    except RuntimeError:
        return False
    return True


def _layout(tensor: torch.Tensor) -> str:
    return f"{tuple(tensor.shape)} {tensor.stride()} {tensor.dtype}"


def _overlap(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.numel() > 0 and b.numel() > 0 and max(_begin(a), _begin(b)) < min(_end(a), _end(b))


def _begin(tensor: torch.Tensor) -> int:
    return tensor.data_ptr()


def _end(tensor: torch.Tensor) -> int:
    steps = ((size - 1) * stride for size, stride in zip(tensor.size(), tensor.stride(), strict=True))
    return tensor.data_ptr() + (sum(steps) + 1) * tensor.element_size()


@dataclass(frozen=True)
class Trial:
    """A program, its calls, and the config and function that capture it."""

    program: programs.Program
    calls: tuple[programs.Call, ...]
    config: cudagraphs.Config
    kind: str  # "backend", "fast path", "graphed"


def disagreement(trial: Trial, device: str) -> str:
    """Return how a captured program differs from the eager one, empty if it does not."""
    program, config, kind = trial.program, trial.config, trial.kind
    torch._dynamo.reset()
    if kind == "backend":
        captured = Side(program, device, lambda module: torch.compile(module, backend=cudagraphs.backend(config)))
        eager = Side(program, device, _by_aot if config.gradients == "autograd" else _by_aot_without_gradients)
    elif kind == "fast path":
        captured = Side(program, device, lambda module: cudagraphs.fast_path(module, config=config))
        eager = Side(program, device, torch.no_grad())
    else:
        example = tuple(torch.rand(programs.ROWS, programs.COLUMNS, device=device) for _ in programs.ARGUMENTS)
        try:
            program.module(device)(*example)
        except RuntimeError:
            return ""
        captured = Side(program, device, lambda module: _graphed(module, example, config))
        eager = Side(program, device, lambda module: module)
    for number, call in enumerate(trial.calls):
        captured_error, eager_error = captured.call(call), eager.call(call)
        if eager_error:
            return ""  # the state after a failed call is not compared
        if kind == "graphed" and "backward through the graph a second time" in captured_error:
            return ""  # eager allows this if nothing was saved
        if captured_error:
            return f"call {number}: captured raised {captured_error}"
        try:
            is_compiled = kind == "backend" and config.gradients != "in_place"  # in_place returns copies, not views
            message = difference(captured, eager, all_calls=config.outputs == "clone", is_compiled=is_compiled)
        except RuntimeError:  # autograd forbids the use of a view
            if _is_usable(eager):
                raise
            return ""
        if message:
            return f"call {number}: {message}"
    return ""


_by_aot = partial(torch.compile, backend="aot_eager")


def _by_aot_without_gradients(module: Any) -> Any:
    """Compile with AOTAutograd where gradients="in_place" does: it removes unused operators, and their random numbers."""
    compiled = _by_aot(module)
    return lambda *args: (module if torch.is_grad_enabled() else compiled)(*args)


def _graphed(module: Any, example: Any, config: cudagraphs.Config) -> Any:
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    cudagraphs.graphed(module, example, config=config, allow_unused_input=True, warmup=1)
    module.load_state_dict(before)
    return module


def _simpler(trial: Trial) -> Iterator[Trial]:
    program, calls = trial.program, trial.calls
    for index in range(len(program.statements)):
        yield replace(trial, program=replace(program, statements=without(program.statements, index)))
    for index in range(len(program.results) if len(program.results) > 1 else 0):
        yield replace(trial, program=replace(program, results=without(program.results, index)))
    if program.nests:
        yield replace(trial, program=replace(program, nests=False))
    for index, call in enumerate(calls):
        yield replace(trial, calls=without(calls, index))
        for number in range(len(call.actions)):
            fewer_actions = replace(call, actions=without(call.actions, number))
            yield replace(trial, calls=(*calls[:index], fewer_actions, *calls[index + 1 :]))


def random_trial(rng: random.Random, device: str) -> Trial:
    """Return a random program with random calls, captured in a random way."""
    kind = rng.choice(("backend", "backend", "backend", "fast path", "graphed"))
    chosen = {name: rng.choice(values) for name, values in _OPTIONS.items()}
    if chosen["params"] == "patch":
        chosen |= {"inputs": "patch", "gradients": "autograd"}
    if kind == "graphed":
        chosen["params"] = "rerecord"
    config = cudagraphs.Config(runtime="emulator" if device == "cpu" else "cuda", **chosen)
    copies_aliases = kind == "graphed" or config.gradients == "in_place"  # returns copies of arguments and parameters
    program = programs.random_program(rng, returns_parameters=kind == "backend" and not copies_aliases)
    calls = programs.random_calls(rng)
    if config.outputs == "alias" or copies_aliases:
        calls = [call.without_earlier_tensors() for call in calls]
    if copies_aliases:
        calls = [call.without("change result") for call in calls]
    return Trial(program, tuple(calls), config, kind)


def described(trial: Trial) -> str:
    return f"{trial.kind}, {trial.config}\n{trial.program.source}{trial.calls}"


if __name__ == "__main__":
    sys.exit(search(random_trial, disagreement, _simpler, described, "programs"))
