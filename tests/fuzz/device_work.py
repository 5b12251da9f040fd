"""Random interleavings of CUDA graphs with other work on the device: eager code is the oracle.

Calls come from several threads and streams, with gradients and without, some with activation checkpoints; between them captures
fail, caches are emptied, workspaces are cleared, functions are closed and deleted, and graphs of the user are captured and
replayed, by hand, by mode="reduce-overhead" and by `torch.cuda.make_graphed_callables`. With one thread random numbers are
compared too: torch has one generator for all threads, and it cannot draw in one while another one captures. Only then others
capture, and code synchronizes with the device, which CUDA forbids while another thread captures. And only then functions are
compiled: while one thread traces, torch lets no other thread call a compiled function. Workspaces are cleared between calls of
other threads: an eager product in one thread writes to its workspace also when another thread has just freed it.

python tests/fuzz/device_work.py [--seconds 60] [--seed 0] [--threads 2]
"""

from __future__ import annotations

import argparse
import copy
import dataclasses
import gc
import random
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from dynx import cudagraphs
from dynx.cudagraphs._runtime.cuda import CudaRuntime
from dynx.cudagraphs._runtime.stream_order import StreamOrder

LONG = 20_000_000  # cycles, about 10 ms
TOLERANCE = {"rtol": 1e-3, "atol": 1e-3}
captures = threading.Lock()  # torch's own captures in two threads disturb each other


class Product(nn.Module):
    """A product that cuBLAS splits along its long dimension, which takes a workspace."""

    shape = (48, 4096)

    def __init__(self, device):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4096, 48).to(device))

    def forward(self, x):
        return (x @ self.weight).relu()


class Pointwise(nn.Module):
    """Many small kernels, in the memory of intermediate tensors."""

    shape = (1 << 16,)

    def __init__(self, device):
        super().__init__()
        self.scale = nn.Parameter(torch.rand(1).to(device))

    def forward(self, x):
        for _ in range(10):
            x = x.sin() * self.scale + 0.1
        return x


class Dropping(nn.Module):
    shape = (4096,)

    def __init__(self, device):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1, device=device))

    def forward(self, x):
        return nn.functional.dropout(x * self.scale, 0.5)


class SlowDropping(Dropping):
    """Works for a while before it drops elements, so that what comes too early from another stream comes in between."""

    def forward(self, x):
        if x.is_cuda:
            torch.cuda._sleep(2 * LONG)
        return super().forward(x)


class Checkpointed(nn.Module):
    """Computes `module` again in the backward pass."""

    def __init__(self, module):
        super().__init__()
        self.module, self.shape = module, module.shape

    def forward(self, x):
        return checkpoint(self.module, x, use_reentrant=False) * 2


KINDS = (Product, Pointwise, Dropping, SlowDropping)


class Function:
    """A module, and what records it; `trains` says whether it is called with gradients."""

    def __init__(self, generator, device, kinds):
        kind = generator.choice(kinds)
        self.module, self.device = kind(device), device
        self.is_random = issubclass(kind, Dropping)
        is_single = Dropping in kinds
        self.how = generator.choice(["fast_path", "fast_path", "graphed", *(["autograd", "in_place"] if is_single else [])])
        self.trains = self.how != "fast_path"
        has_own_generator = self.is_random and self.how == "autograd"  # AOTAutograd's, where it computes again
        if self.trains and generator.random() < 0.5 and not has_own_generator:
            self.module = Checkpointed(self.module)
        self.on_cpu = on_cpu(self.module, self.trains)
        inputs = generator.choice(["copy", "memcpy_node", "patch", "auto"])
        config = cudagraphs.Config(inputs=inputs, outputs="clone", verify=generator.choice([0, 0, 2]))
        with torch.cuda.device(device):
            self.run = self.recorded(config)

    def recorded(self, config):
        if self.how == "fast_path":
            return cudagraphs.fast_path(self.module, config=config)
        if self.how == "graphed":
            example = torch.ones(self.module.shape, device=self.device, requires_grad=True)
            return cudagraphs.graphed(self.module.forward, (example,), config=config)
        config = dataclasses.replace(config, gradients=self.how)
        return torch.compile(self.module, backend=cudagraphs.backend(config), dynamic=False)

    def close(self):
        if hasattr(self.run, "close"):
            self.run.close()
        else:
            cudagraphs.reset()

    def call(self, run, x):
        return results_of(run, x, self.module if self.trains else None)

    def __str__(self):
        recomputed = ", checkpointed" if isinstance(self.module, Checkpointed) else ""
        return f"{type(self.module).__name__} on {self.device} through {self.how}{recomputed}"


def results_of(run, x, module):
    """Return the result, and where a module is given, the gradients of the argument and its parameters."""
    if module is None:
        with torch.no_grad():
            return [run(x)]
    x = x.detach().requires_grad_()
    out = run(x)
    (out * torch.linspace(0, 1, out.numel(), device=x.device).view_as(out)).sum().backward()
    gradients = [tensor.grad.clone() for tensor in (x, *module.parameters())]
    for param in module.parameters():
        param.grad = None
    return [out.detach(), *gradients]


def on_cpu(module, trains):
    """Return a function that computes the results of a module for an argument and values of parameters, on the CPU."""
    module = copy.deepcopy(module).to("cpu", torch.float64)

    def compute(x, values):
        for param, value in zip(module.parameters(), values, strict=True):
            param.data = value.to("cpu", torch.float64)
        return results_of(module, x.to("cpu", torch.float64), module if trains else None)

    return compute


def set_offset(device, seed, skipped):
    """Set the seed of all devices, and draw a few numbers: a capture sets the offset of random numbers to 0."""
    torch.cuda.manual_seed_all(seed)
    for _ in range(skipped):
        torch.rand(1, device=device)


class Kept(NamedTuple):
    """The results of a call, recorded and eager, with what they can be computed from again: not the function, which may end."""

    name: str
    on_cpu: Callable[[torch.Tensor, list[torch.Tensor]], list[torch.Tensor]]
    results: list[torch.Tensor]
    expected: list[torch.Tensor]
    x: torch.Tensor
    values: list[torch.Tensor]
    event: torch.cuda.Event

    def check(self):
        self.event.synchronize()
        for index, (result, expected) in enumerate(zip(self.results, self.expected, strict=True)):
            if not torch.allclose(result, expected, **TOLERANCE):
                differ = f"result {index}, {int((result != expected).sum())} of {result.numel()} elements differ"
                raise AssertionError(f"{self.name}: {differ}; {self.wrong(index)}")

    def wrong(self, index):
        """Return which of the two is not what a CPU computes; with random numbers, neither is."""
        right = self.on_cpu(self.x, self.values)[index]
        both = {"recorded": self.results[index], "eager": self.expected[index]}
        wrong = [name for name, value in both.items() if not torch.allclose(value.cpu().double(), right, **TOLERANCE)]
        return f"wrong: {' and '.join(wrong) or 'none of the two'}"


class Calls:
    """Lets calls of all threads run at once, and something else only while no call does."""

    def __init__(self):
        self._changed, self._running = threading.Condition(), 0

    @contextmanager
    def one(self):
        with self._changed:
            self._running += 1
        try:
            yield
        finally:
            with self._changed:
                self._running -= 1
                self._changed.notify_all()

    @contextmanager
    def none(self):
        with self._changed:
            self._changed.wait_for(lambda: self._running == 0)
            yield


calls = Calls()


class Worker:
    """Makes random actions on functions of its own, from one thread."""

    def __init__(self, seed, counts, kinds):
        self.random, self.kinds = random.Random(seed), kinds
        self.is_single = Dropping in kinds
        self.actions = {name: weight for name, weight in ACTIONS.items() if self.is_single or name not in OF_ONE_THREAD}
        self.devices = [torch.device("cuda", index) for index in range(torch.cuda.device_count())]
        self.streams = {device: [torch.cuda.Stream(device) for _ in range(3)] for device in self.devices}
        self.functions = [self.new_function() for _ in range(4)]
        self.kept: list[Kept] = []
        self.counts = counts
        self.taken: list[torch.Tensor] = []
        self.trees, self.graphed = None, None

    def new_function(self):
        with calls.one():  # it is called when it is recorded
            return Function(self.random, self.random.choice(self.devices), self.kinds)

    def act(self):
        name = self.random.choices(*zip(*self.actions.items(), strict=True))[0]
        self.counts[name] = self.counts.get(name, 0) + 1
        getattr(self, name)()
        if len(self.kept) > 12:
            self.compare()

    def call(self):
        """Call a function on a random stream, eagerly and recorded, with another device current now and then."""
        function = self.random.choice(self.functions)
        device = function.device
        stream = self.random.choice([*self.streams[device], torch.cuda.default_stream(device)])
        is_random, seed, skipped = function.is_random, self.random.randrange(1000), self.random.randrange(1, 5)
        with torch.cuda.stream(stream), calls.one():
            x = torch.randn(function.module.shape).to(device)
            for param in function.module.parameters():
                param.record_stream(stream)  # it may be deleted while the stream still uses it
            if self.random.random() < 0.2:
                torch.cuda._sleep(self.random.randrange(LONG))
            if is_random:
                set_offset(device, seed, skipped)
            expected = function.call(function.module, x)
            if is_random:
                set_offset(device, seed, skipped)
            current = self.random.choice(self.devices) if stream == torch.cuda.default_stream(device) else device
            with torch.cuda.device(current):
                results = function.call(function.run, x)
            x, values = x.clone(), [param.detach().clone() for param in function.module.parameters()]
            event = stream.record_event()
            for tensor in (*results, *expected, x, *values):
                tensor.record_stream(torch.cuda.default_stream(device))
        self.kept.append(Kept(str(function), function.on_cpu, results, expected, x, values, event))

    def compare(self):
        for kept in self.kept:
            kept.check()
        self.kept.clear()
        for block in self.taken:
            if (others := block[block != 7]).numel():
                at, values = f"{block.data_ptr():x} of {block.device}", others.unique()[:8].tolist()
                raise AssertionError(f"a replay has written {others.numel()} elements to memory of others at {at}: {values}")

    def fail(self):
        """Let a capture fail, by reading a value or raising."""
        layer = nn.Identity()
        kind = self.random.choice((0, 1, 2) if self.is_single else (0, 2))

        def failing(x):
            if kind == 0:
                return layer(x * x.sum().item())
            if kind == 1:
                torch.cuda.synchronize()
            elif torch.cuda.is_current_stream_capturing():
                raise KeyError("no")
            return layer(x * 2)

        run = cudagraphs.fast_path(failing)
        with captures:
            for _ in range(3):
                try:
                    run(torch.ones(3, device="cuda"))
                except KeyError:
                    pass

    def take(self):
        """Free memory that nobody holds, and fill it."""
        gc.collect()
        torch.cuda.empty_cache()
        self.taken = [torch.full((1 << 18,), 7.0, device=self.random.choice(self.devices)) for _ in range(64)]

    def clear_workspaces(self):
        with calls.none():
            torch._C._cuda_clearCublasWorkspaces()

    def close(self):
        self.random.choice(self.functions).close()

    def replace(self):
        """Delete a function, perhaps while it runs, and make another one."""
        index = self.random.randrange(len(self.functions))
        self.functions[index] = self.new_function()

    def rebind(self):
        """Assign another parameter to a module."""
        module = self.random.choice(self.functions).module
        module = module.module if isinstance(module, Checkpointed) else module
        name, param = next(iter(module.named_parameters()))
        setattr(module, name, nn.Parameter(param.detach() * 1.1))
        torch.cuda.default_stream(param.device).record_event().synchronize()  # other streams read it

    def capture_of_user(self):
        with captures:
            x, weight = torch.randn(64, 64).cuda(), torch.randn(64, 64).cuda()
            _ = x @ weight
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, capture_error_mode="thread_local"):
                out = x @ weight
            graph.replay()
            torch.cuda.synchronize()
            torch.testing.assert_close(out, x @ weight, **TOLERANCE)

    def reduce_overhead(self):
        """Call what torch's own CUDA graph trees record."""
        if self.trees is None:
            self.trees = Product("cuda").requires_grad_(False)
            self.compiled = torch.compile(self.trees, mode="reduce-overhead")
        x = torch.randn(self.trees.shape).cuda()
        with torch.cuda.device(0), torch.no_grad():
            torch.compiler.cudagraph_mark_step_begin()
            torch.testing.assert_close(self.compiled(x).clone(), self.trees(x), **TOLERANCE)

    def graphed_by_torch(self):
        """Call what `torch.cuda.make_graphed_callables` captured, and now and then let it capture another module."""
        with torch.cuda.device(0):
            if self.graphed is None or self.random.random() < 0.2:
                self.plain = Pointwise("cuda")
                example = torch.randn(self.plain.shape, device="cuda", requires_grad=True)
                self.graphed = torch.cuda.make_graphed_callables(Pointwise("cuda"), (example,))
                self.graphed.load_state_dict(self.plain.state_dict())
            x = torch.randn(self.plain.shape).cuda()
            torch.testing.assert_close(self.graphed(x), self.plain(x), **TOLERANCE)


ACTIONS = {
    "call": 60,
    "compare": 4,
    "fail": 2,
    "take": 3,
    "clear_workspaces": 2,
    "close": 3,
    "replace": 4,
    "rebind": 3,
    "capture_of_user": 2,
    "reduce_overhead": 2,
    "graphed_by_torch": 2,
}
OF_ONE_THREAD = ("capture_of_user", "reduce_overhead", "graphed_by_torch")


def delay_captures(seed):
    """Let the stream that captures be busy when some of the captures begin: torch clears the offset of random numbers there."""
    begin, generator = torch.cuda.CUDAGraph.capture_begin, random.Random(seed)

    def delayed(graph, *args, **kwargs):
        if generator.random() < 0.5:
            torch.cuda._sleep(generator.randrange(2 * LONG))
        begin(graph, *args, **kwargs)

    torch.cuda.CUDAGraph.capture_begin = delayed


def order_after_captures():
    """Let nobody wait for the stream that has captured."""
    CudaRuntime._let_others_follow = lambda self, stream, caller: None


def order_of_replays():
    """Let replays on two streams not wait for each other."""
    StreamOrder.follow = lambda self, stream: setattr(self, "last", stream)


PLANTED = {plant.__name__: plant for plant in (order_after_captures, order_of_replays)}


def work(worker, until, failures):
    try:
        while time.monotonic() < until and not failures:
            worker.act()
        worker.compare()
    except Exception:  # noqa: BLE001 - printed at the end
        failures.append(traceback.format_exc())


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--plant", choices=PLANTED)
    options = parser.parse_args()
    warnings.simplefilter("ignore")  # of captures that fail on purpose
    torch._dynamo.config.recompile_limit = torch._dynamo.config.accumulated_recompile_limit = 10_000  # one code, many modules
    delay_captures(options.seed)
    if options.plant:
        PLANTED[options.plant]()
    failures: list[str] = []
    counts: dict[str, int] = {}
    begin = time.monotonic()
    until = begin + options.seconds
    kinds = KINDS if options.threads == 1 else (Product, Pointwise)
    workers = [Worker(options.seed * 100 + number, counts, kinds) for number in range(options.threads)]
    threads = [threading.Thread(target=work, args=(worker, until, failures)) for worker in workers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    where = f"seed {options.seed}, {options.threads} threads, {torch.cuda.device_count()} devices, torch {torch.__version__}"
    print(f"{where}: {time.monotonic() - begin:.0f} s, {sum(counts.values())} actions, {len(failures)} failures:", counts)
    for failure in failures:
        print(failure)
    return int(bool(failures))


if __name__ == "__main__":
    sys.exit(main())
