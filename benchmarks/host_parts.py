"""Where the time goes for which a call keeps the CPU: each part of it is measured by itself, in turn with the whole call.

Three kinds of calls: a training step with gradients in place, patched inputs, and 40 parameters that are swapped. What torch
and the driver take is theirs; what is left of the whole after all parts is the row `rest`. Torch runs backward passes in a
thread of the device; the step in one thread shows what that change takes, whose code runs on another core.

python benchmarks/host_parts.py [--rounds 40] [--out benchmarks/results/host-parts-h100.json]
"""

from __future__ import annotations

import argparse
import gc
import itertools
import json
import statistics
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from host_calls import DEVICE, Call, Loss, bare_replay, compiled, config, microseconds, mlp

from dynx import cudagraphs
from dynx.cudagraphs._functions.grads_in_place import GradsInPlace
from dynx.cudagraphs._functions.recorded_function import RecordedFunction

LAYERS = 20
OF_WHICH = "  of which "  # such rows are parts of the row above, and not added up
Part = tuple[str, str, Call]  # what it is, who it belongs to, and how it is done


class Nothing(torch.autograd.Function):
    """What autograd takes for a function that does nothing, with as many tensors as the recorded one."""

    @staticmethod
    def forward(ctx: Any, result: torch.Tensor, *tensors: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(torch.empty(0))
        return result.detach()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        ctx.saved_tensors  # noqa: B018
        return (None,) * 2


def recorded_inside(before: set[int]) -> RecordedFunction:
    """Return the recorded function that was made since; `torch.compile` keeps it to itself."""
    (function,) = (function for function in recorded_functions() if id(function) not in before)
    return function


def recorded_functions() -> list[RecordedFunction]:
    return [value for value in gc.get_objects() if type(value) is RecordedFunction]


def fast_path_parts(function: RecordedFunction, bare: Call, *calls: Sequence[torch.Tensor]) -> list[Part]:
    """The parts of a call of `fast_path`; `calls` are the arguments of two calls, which are made in turn."""
    match, is_unchanged, run, _ = function._latest
    (recording,) = function.recordings
    ((_, graph),) = recording.captured
    turns, again = itertools.cycle(calls), itertools.cycle(calls)
    return [
        ("match the arguments", "dynx", lambda: match(tuple(calls[0]), {})),
        ("check what the function reads", "dynx", is_unchanged),
        ("set addresses, allocate the result, launch", "driver", lambda: run(next(turns))),
        (OF_WHICH + "set addresses", "driver", lambda: graph.set_sources(next(again))),
        (OF_WHICH + "launch, of a graph without copies", "driver", bare),
    ]


def in_turn(run: Callable[..., Any], calls: Sequence[Sequence[torch.Tensor]]) -> Call:
    """Return a function that calls with each of these arguments in turn, after calls that record."""
    turns = itertools.cycle(calls)
    call = torch.no_grad()(lambda: run(*next(turns)))
    for _ in range(6):
        call()
    return call


def patched() -> tuple[str, Call, list[Part]]:
    model, x = mlp(LAYERS).requires_grad_(False), torch.randn(8, 64, device=DEVICE)
    run = cudagraphs.fast_path(model, config=config(inputs="patch"))
    calls = [[x], [x.clone()]]
    call = in_turn(run, calls)
    return "patched inputs", call, fast_path_parts(run, bare_replay(model, x), *calls)


def swapped() -> tuple[str, Call, list[Part]]:
    model, x = mlp(LAYERS).requires_grad_(False), torch.randn(8, 64, device=DEVICE)
    names = [name for name, _ in model.named_parameters()]
    calls = [[*(param.detach().clone() for param in model.parameters()), x] for _ in range(2)]

    def call_with(*args: torch.Tensor) -> Any:
        return torch.func.functional_call(model, dict(zip(names, args[:-1], strict=True)), args[-1:])

    run = cudagraphs.fast_path(call_with, config=config(inputs="patch"))
    call = in_turn(run, calls)
    return "40 parameters swapped", call, fast_path_parts(run, bare_replay(model, x), *calls)


def in_one_thread(call: Call) -> Call:
    """Return a function that runs backward passes in the calling thread, instead of torch's thread of the device."""

    def run() -> None:
        with torch.autograd.set_multithreading_enabled(False):
            call()

    return run


def in_place_in_one_thread() -> tuple[str, Call, list[Part]]:
    title, step, parts = in_place()
    parts = [(name, owner, in_one_thread(part) if "backward pass" in name else part) for name, owner, part in parts]
    return f"{title}, in one thread", in_one_thread(step), parts


def in_place() -> tuple[str, Call, list[Part]]:
    loss, x, before = Loss(mlp(LAYERS)), torch.randn(8, 64, device=DEVICE), set(map(id, recorded_functions()))
    run, parameters = compiled(loss, gradients="in_place"), list(loss.parameters())

    def clear() -> None:
        for param in parameters:
            param.grad = None

    def step() -> None:
        clear()
        run(x).backward()

    for _ in range(6):
        step()
    function = recorded_inside(before)
    match, is_unchanged, _, _ = function._latest
    (pair,) = function.recordings
    forward, backward = pair._all()[:2]
    result = torch.zeros((), device=DEVICE)
    plain = Loss(mlp(LAYERS))
    at_once = torch.compile(plain, backend=lambda graph, inputs: lambda *args: (result,))
    at_once(x)
    anchor, gradients = torch.zeros((), requires_grad=True), [param.grad for param in parameters]

    def assign() -> None:
        for param, gradient in zip(parameters, gradients, strict=True):
            param.grad = gradient

    owner = next(value for value in gc.get_objects() if type(value) is GradsInPlace and value._recorded is function)
    owner.static_args = list(parameters)
    arguments = next(args for args in ([x], []) if match(tuple(args), {}) is not None)
    return (
        "a step with gradients in place",
        step,
        [
            ("gradients to None", "torch", clear),
            ("guards, and the frame of compiled code", "torch", lambda: at_once(x)),
            ("a function of autograd and its backward pass", "torch", lambda: Nothing.apply(result, anchor).backward()),
            ("assign the gradients", "torch", assign),
            ("set addresses, and launch the forward graph", "driver", lambda: forward.run(arguments)),
            ("set addresses, and launch the backward graph", "driver", lambda: backward.run([result])),
            (OF_WHICH + "launch, of a forward graph without copies", "driver", bare_replay(plain, x)),
            ("match the arguments", "dynx", lambda: match(tuple(arguments), {})),
            ("check parameters and hooks", "dynx", is_unchanged),
        ],
    )


def accounted(title: str, call: Call, parts: list[Part], rounds: int) -> list[dict[str, Any]]:
    times: dict[str, list[float]] = {name: [] for name in ["whole", *(name for name, _, _ in parts)]}
    for _ in range(rounds):
        times["whole"].append(microseconds(call))
        for name, _, part in parts:
            times[name].append(microseconds(part))
    medians = {name: statistics.median(each) for name, each in times.items()}
    owners = {name: owner for name, owner, _ in parts}
    rest = medians["whole"] - sum(medians[name] for name in owners if not name.startswith(OF_WHICH))
    rows = [(name, owners.get(name, ""), time) for name, time in medians.items()] + [("rest", "dynx", rest)]
    print(title)
    for name, owner, time in rows:
        print(f"  {name:<54} {owner:<7} {time:9.1f} us")
    return [{"call": title, "part": name.strip(), "of": owner, "microseconds": time} for name, owner, time in rows]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    makers: tuple[Callable[[], tuple[str, Call, list[Part]]], ...] = (in_place, in_place_in_one_thread, patched, swapped)
    rows = [row for make in makers for row in accounted(*make(), options.rounds)]
    if options.out is not None:
        device = torch.cuda.get_device_name() if DEVICE == "cuda" else "the emulator on a CPU"
        about = {"device": device, "torch": torch.__version__, "date": datetime.now(UTC).date().isoformat()}
        options.out.write_text(json.dumps(about | {"rows": rows}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
