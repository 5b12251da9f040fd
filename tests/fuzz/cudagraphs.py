"""Calls random modules as recordings and as they are, and looks whether both do the same.

python tests/fuzz/cudagraphs.py [--seed 0] [--programs 100] [--device cpu]
Values have to be equal bit for bit: of results, of arguments, parameters, buffers and gradients, of results of earlier calls;
results share memory with each other, with arguments and with parameters in both or in neither.
Prints each program that differs, made as short as it still differs; exits with 1 if there was one.
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

import graph_programs as made
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
    """A module with what it was called with and what it gave: one of the two that are compared."""

    def __init__(self, program: made.Program, device: str, run_of: Any) -> None:
        self.device = device
        self.module = program.module(device)
        self.run = run_of(self.module)
        self.arguments: list[torch.Tensor] = []
        self.kept: list[list[torch.Tensor]] = []  # results of each call
        self.waiting: list[list[torch.Tensor]] = []  # for their backward passes

    def call(self, call: made.Call) -> str:
        """Do a call and what is to be done then; gives the error where there was one."""
        before, self.arguments = self.arguments, []
        for number, way in enumerate(call.arguments):
            self.arguments.append(before[number] if way == "kept" and before else self._argument(way, number, call))
        self.module.train("eval" not in call.then)
        autocast = torch.autocast(self.device, torch.bfloat16, enabled="autocast" in call.then)
        torch.manual_seed(call.seed)
        try:
            with _MODES[call.mode](), autocast:
                found = self.run(*self.arguments)
            self.kept.append([each for each in tree_leaves(found) if isinstance(each, torch.Tensor)])
            for each in call.then:
                self._do(each, call.mode)
        except (RuntimeError, AssertionError, IndexError) as error:  # AOTAutograd asserts some things
            return str(error)
        return ""

    def _do(self, what: str, mode: str) -> None:
        results, weight = self.kept[-1], self.module.weight
        if what in ("backward", "wait"):
            self.waiting.append(results)
        if what == "backward":
            for each in reversed(self.waiting):
                differentiable = [one for one in each if one.requires_grad]
                if differentiable:
                    sum(one.sum().double() for one in differentiable).backward()
            self.waiting.clear()
        with torch.no_grad():
            is_inference = mode == "inference" or any(each.is_inference() for each in results)
            if what == "change result" and not is_inference:  # outputs="alias" gives tensors that are none
                results[0].add_(1)
            elif what == "change weight":
                weight.mul_(1.5)
            elif what == "move weight":
                weight.data = weight.data.clone()
            elif what == "drop":
                del self.kept[:-1]
            elif what == "step":
                for each in self.module.parameters():
                    if each.grad is not None:
                        each.sub_(each.grad)
                        each.grad = None

    def _argument(self, way: str, number: int, call: made.Call) -> torch.Tensor:
        chance = torch.Generator().manual_seed(100 * call.seed + number)
        fresh = torch.rand(call.rows, made.COLUMNS, generator=chance).to(self.device)
        if way == "first" and number > 0:
            return self.arguments[0]
        if way == "slice":
            return torch.cat([fresh, fresh])[2:][: call.rows]  # aligned: what is not may have other random numbers
        if way == "wide":
            return torch.cat([fresh, fresh], 1)[:, : made.COLUMNS]
        if way == "transposed":
            return fresh.t().contiguous().t()
        if way == "result":
            fitting = [each for each in (self.kept[-1] if self.kept else ()) if each.shape == fresh.shape]
            return fitting[0].detach() if fitting else fresh
        return fresh.requires_grad_(way == "needs")

    def everything(self, *, with_kept: bool) -> dict[str, torch.Tensor]:
        """Name all tensors that can be seen."""
        named = {**dict(self.module.named_parameters()), **dict(self.module.named_buffers())}
        named |= {f"argument {index}": each for index, each in enumerate(self.arguments)}
        gradients = {f"gradient of {name}": each.grad for name, each in named.items() if each.grad is not None}
        for back, results in enumerate(reversed(self.kept if with_kept else self.kept[-1:])):
            named |= {f"result {index}, {back} calls ago": each for index, each in enumerate(results)}
        return named | gradients


def difference(ours: Side, theirs: Side, *, with_kept: bool, is_compiled: bool) -> str:
    """Say how two sides differ; empty where they do not. What is no graph of torch.compile gives no views and no arguments."""
    mine, other = (each.everything(with_kept=with_kept) for each in (ours, theirs))
    if list(mine) != list(other):
        return f"there is {sorted(set(mine) ^ set(other))} on one side only"
    for name, one in mine.items():
        two = other[name]
        if _layout(one) != _layout(two) or (is_compiled and (one.grad_fn is None) != (two.grad_fn is None)):
            return f"{name} is {_layout(one)} {one.requires_grad}, not {_layout(two)} {two.requires_grad}"
        if not torch.equal(torch.nan_to_num(one.detach(), 7e9), torch.nan_to_num(two.detach(), 7e9)):
            return f"{name} is {one.tolist()}, not {two.tolist()}"
    for one, two in combinations(mine, 2) if is_compiled else ():
        if mine[one].grad_fn is not None and mine[two].grad_fn is not None:
            continue  # autograd would not know of it: they are copied apart
        if _share(mine[one], mine[two]) != _share(other[one], other[two]):
            return f"{one} and {two} share memory on one side only: {'ours' if _share(mine[one], mine[two]) else 'theirs'}"
    return ""


def _is_usable(side: Side) -> bool:
    try:
        list(map(attrgetter("grad_fn"), side.everything(with_kept=True).values()))
    except RuntimeError:
        return False
    return True


def _layout(tensor: torch.Tensor) -> str:
    return f"{tuple(tensor.shape)} {tensor.stride()} {tensor.dtype}"


def _share(one: torch.Tensor, other: torch.Tensor) -> bool:
    return one.numel() > 0 and other.numel() > 0 and max(_begin(one), _begin(other)) < min(_end(one), _end(other))


def _begin(tensor: torch.Tensor) -> int:
    return tensor.data_ptr()


def _end(tensor: torch.Tensor) -> int:
    steps = ((size - 1) * stride for size, stride in zip(tensor.size(), tensor.stride(), strict=True))
    return tensor.data_ptr() + (sum(steps) + 1) * tensor.element_size()


@dataclass(frozen=True)
class Trial:
    """A program, how it is called, and how it is recorded."""

    program: made.Program
    calls: tuple[made.Call, ...]
    config: cudagraphs.Config
    kind: str  # "backend", "fast path", "graphed"


def tried(how: Trial, device: str) -> str:
    """Give how the recordings of a program differ from the program; empty where they do not."""
    program, config, kind = how.program, how.config, how.kind
    torch._dynamo.reset()
    if kind == "backend":
        ours = Side(program, device, lambda module: torch.compile(module, backend=cudagraphs.backend(config)))
        theirs = Side(program, device, _by_aot if config.gradients == "autograd" else _by_aot_without_gradients)
    elif kind == "fast path":
        ours = Side(program, device, lambda module: cudagraphs.fast_path(module, config=config))
        theirs = Side(program, device, torch.no_grad())
    else:
        example = tuple(torch.rand(made.ROWS, made.COLUMNS, device=device) for _ in made.ARGUMENTS)
        try:
            program.module(device)(*example)
        except RuntimeError:
            return ""
        ours = Side(program, device, lambda module: _graphed(module, example, config))
        theirs = Side(program, device, lambda module: module)
    for number, call in enumerate(how.calls):
        ours_failed, theirs_failed = ours.call(call), theirs.call(call)
        if theirs_failed:
            return ""  # what a failed call leaves is not compared
        if kind == "graphed" and "backward through the graph a second time" in ours_failed:
            return ""  # eager lets that be where it saved nothing
        if ours_failed:
            return f"call {number}: ours raised {ours_failed}"
        try:
            is_compiled = kind == "backend" and config.gradients != "in_place"  # which gives copies, not views
            found = difference(ours, theirs, with_kept=config.outputs == "clone", is_compiled=is_compiled)
        except RuntimeError:  # a view that autograd forbids to use
            if _is_usable(theirs):
                raise
            return ""
        if found:
            return f"call {number}: {found}"
    return ""


_by_aot = partial(torch.compile, backend="aot_eager")


def _by_aot_without_gradients(module: Any) -> Any:
    """Go by AOTAutograd where gradients="in_place" does: it leaves out unused operators, and with them random numbers."""
    compiled = _by_aot(module)
    return lambda *args: (module if torch.is_grad_enabled() else compiled)(*args)


def _graphed(module: Any, example: Any, config: cudagraphs.Config) -> Any:
    before = {name: each.clone() for name, each in module.state_dict().items()}
    cudagraphs.graphed(module, example, config=config, allow_unused_input=True, warmup=1)
    module.load_state_dict(before)
    return module


def _shorter(how: Trial) -> Iterator[Trial]:
    program, calls = how.program, how.calls
    for index in range(len(program.statements)):
        yield replace(how, program=replace(program, statements=without(program.statements, index)))
    for index in range(len(program.results) if len(program.results) > 1 else 0):
        yield replace(how, program=replace(program, results=without(program.results, index)))
    if program.nests:
        yield replace(how, program=replace(program, nests=False))
    for index, call in enumerate(calls):
        yield replace(how, calls=without(calls, index))
        for number in range(len(call.then)):
            plainer = replace(call, then=without(call.then, number))
            yield replace(how, calls=(*calls[:index], plainer, *calls[index + 1 :]))


def trial(chance: random.Random, device: str) -> Trial:
    """Make a program, how it is recorded, and how it is called."""
    kind = chance.choice(("backend", "backend", "backend", "fast path", "graphed"))
    chosen = {name: chance.choice(values) for name, values in _OPTIONS.items()}
    if chosen["params"] == "patch":
        chosen |= {"inputs": "patch", "gradients": "autograd"}
    if kind == "graphed":
        chosen["params"] = "rerecord"
    config = cudagraphs.Config(runtime="emulator" if device == "cpu" else "cuda", **chosen)
    gives_copies = kind == "graphed" or config.gradients == "in_place"  # of arguments and parameters, not views
    program = made.program(chance, shows_parameters=kind == "backend" and not gives_copies)
    calls = made.calls(chance)
    if config.outputs == "alias" or gives_copies:
        calls = [each.without_the_past() for each in calls]
    if gives_copies:
        calls = [each.without("change result") for each in calls]
    return Trial(program, tuple(calls), config, kind)


def shown(how: Trial) -> str:
    return f"{how.kind}, {how.config}\n{how.program.source}{how.calls}"


if __name__ == "__main__":
    sys.exit(search(trial, tried, _shorter, shown, "programs"))
