"""Where the time goes for which a call keeps the CPU: a clock is stopped at the borders of its parts.

Three kinds of calls: a training step with gradients in place, patched inputs, and 40 parameters that are swapped. Each moment
of a call belongs to the part that runs then, so that the parts add up to the whole, and to what stopping the clock takes. Torch
runs backward passes in a thread of the device; the step in one thread shows what that change takes.

python benchmarks/host_parts.py [--rounds 40] [--out benchmarks/results/host-parts-h100.json]
"""

from __future__ import annotations

import argparse
import gc
import itertools
import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from host_calls import CALLS, DEVICE, Call, Loss, compiled, config, microseconds, mlp

from dynx import cudagraphs
from dynx.cudagraphs._functions.grads_in_place import GradsInPlace
from dynx.cudagraphs._functions.recorded_function import RecordedFunction

LAYERS = 20


class Clock:
    """Adds up in microseconds how long each part ran, without the parts that it called; one thread runs at a time."""

    def __init__(self) -> None:
        self.owners: dict[str, str] = {}
        self.is_on = False
        self._times: dict[str, int] = {}
        self._running: list[str] = []
        self._since = 0

    def part(self, name: str, owner: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that stops the clock before and after `function`, and counts the time for this part."""
        self.owners[name] = owner

        def timed(*args: Any, **kwargs: Any) -> Any:
            if not self.is_on:
                return function(*args, **kwargs)
            self._stop()
            self._running.append(name)
            self._since = time.perf_counter_ns()
            try:
                return function(*args, **kwargs)
            finally:
                self._stop()
                self._running.pop()
                self._since = time.perf_counter_ns()

        return timed

    def _stop(self) -> None:
        now = time.perf_counter_ns()
        if self._running:
            self._times[self._running[-1]] += now - self._since

    def measure(self, call: Call) -> dict[str, float]:
        """Return the microseconds of each part of a call, as the mean of some calls."""
        self._times, self.is_on = dict.fromkeys(self.owners, 0), True
        try:
            microseconds(call)
        finally:
            self.is_on = False
        return {name: nanoseconds / 1e3 / CALLS for name, nanoseconds in self._times.items()}


def recorded_functions() -> list[RecordedFunction]:
    return [value for value in gc.get_objects() if type(value) is RecordedFunction]


def time_recorded_function(clock: Clock, function: RecordedFunction) -> None:
    """Let the clock stop at the parts of a call of this function, and of a replay of its recordings."""
    latest = function._latest
    match = clock.part("match the arguments", "dynx", latest.match)
    is_unchanged = clock.part("check what the function reads", "dynx", latest.is_unchanged)
    run = clock.part("order of streams, addresses, memory of results", "driver", latest.run)
    function._latest = latest._replace(match=match, is_unchanged=is_unchanged, run=run)
    for recording in function.recordings:
        for _, graph in recording.captured:
            graph.replay = clock.part("launch", "driver", graph.replay)


def in_turn(clock: Clock, run: RecordedFunction, calls: Sequence[Sequence[torch.Tensor]]) -> Call:
    """Return a function that calls with each of these arguments in turn, after calls that record."""
    turns = itertools.cycle(calls)
    timed = clock.part("the call itself: lock, check for a capture, result", "dynx", run)
    call = torch.no_grad()(lambda: timed(*next(turns)))
    for _ in range(6):
        call()
    time_recorded_function(clock, run)
    return call


def patched(clock: Clock) -> tuple[str, Call]:
    model, x = mlp(LAYERS).requires_grad_(False), torch.randn(8, 64, device=DEVICE)
    run = cudagraphs.fast_path(model, config=config(inputs="patch"))
    return "patched inputs", in_turn(clock, run, [[x], [x.clone()]])


def swapped(clock: Clock) -> tuple[str, Call]:
    model, x = mlp(LAYERS).requires_grad_(False), torch.randn(8, 64, device=DEVICE)
    names = [name for name, _ in model.named_parameters()]
    calls = [[*(param.detach().clone() for param in model.parameters()), x] for _ in range(2)]

    def call_with(*args: torch.Tensor) -> Any:
        return torch.func.functional_call(model, dict(zip(names, args[:-1], strict=True)), args[-1:])

    run = cudagraphs.fast_path(call_with, config=config(inputs="patch"))
    return "40 parameters swapped", in_turn(clock, run, calls)


def in_place_in_one_thread(clock: Clock) -> tuple[str, Call]:
    title, step = in_place(clock)

    def step_in_one_thread() -> None:
        with torch.autograd.set_multithreading_enabled(False):
            step()

    return f"{title}, in one thread", step_in_one_thread


def in_place(clock: Clock) -> tuple[str, Call]:
    loss, x, before = Loss(mlp(LAYERS)), torch.randn(8, 64, device=DEVICE), set(map(id, recorded_functions()))
    run, parameters = compiled(loss, gradients="in_place"), list(loss.parameters())

    def clear() -> None:
        for param in parameters:
            param.grad = None

    forward = clock.part("guards, and the frame of compiled code", "torch", run)
    backward = clock.part("the engine of backward passes, and its thread", "torch", torch.Tensor.backward)
    clear = clock.part("gradients to None", "torch", clear)

    def step() -> None:
        clear()
        backward(forward(x))

    for _ in range(6):
        step()
    (function,) = (function for function in recorded_functions() if id(function) not in before)
    (pair,) = function.recordings
    time_recorded_function(clock, function)
    (compiled_graph,) = (value for value in gc.get_objects() if type(value) is GradsInPlace and value._recorded is function)
    compiled_graph._recorded = clock.part("the call itself: lock, check for a capture, result", "dynx", function)
    function._latest = function._latest._replace(run=clock.part("a function of autograd", "torch", pair.run))
    for recording in pair._all():
        recording.run = clock.part("order of streams, addresses, memory of results", "driver", recording.run)
    pair.replay_forward = clock.part("around the replay of the forward pass", "dynx", pair.replay_forward)
    pair.replay_backward = clock.part("around the replay of the backward pass", "dynx", pair.replay_backward)
    pair._accumulate = clock.part("read and assign the gradients", "torch", pair._accumulate)
    return "a step with gradients in place", step


def accounted(make: Callable[[Clock], tuple[str, Call]], rounds: int) -> list[dict[str, Any]]:
    clock = Clock()
    title, call = make(clock)
    wholes, parts = [], []
    for _ in range(rounds):
        wholes.append(microseconds(call))
        parts.append(clock.measure(call))
    whole = statistics.median(wholes)
    medians = {name: statistics.median(part[name] for part in parts) for name in clock.owners}
    rows = [("whole", "", whole)] + [(name, clock.owners[name], time) for name, time in medians.items()]
    rows.append(("the sum of the parts, less the whole: the clock itself", "", sum(medians.values()) - whole))
    print(title)
    for name, owner, time_of_part in rows:
        print(f"  {name:<54} {owner:<7} {time_of_part:9.1f} us")
    return [{"call": title, "part": name, "of": owner, "microseconds": round(time, 2)} for name, owner, time in rows]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    makers = (in_place, in_place_in_one_thread, patched, swapped)
    rows = [row for make in makers for row in accounted(make, options.rounds)]
    if options.out is not None:
        device = torch.cuda.get_device_name() if DEVICE == "cuda" else "the emulator on a CPU"
        about = {"device": device, "torch": torch.__version__, "date": datetime.now(UTC).date().isoformat()}
        options.out.write_text(json.dumps(about | {"rows": rows}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
