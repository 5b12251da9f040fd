"""Random interleavings of CUDA graphs with other work on the device: eager code is the oracle.

Calls come from several threads and streams; between them captures fail, caches are emptied, workspaces are cleared, functions
are closed and deleted, and graphs of the user are captured and replayed. With one thread random numbers are compared too: torch
has one generator for all threads, and it cannot draw in one while another one captures. Only then the user captures, and code
synchronizes with the device, which CUDA forbids while another thread captures.

python tests/fuzz/device_work.py [--seconds 60] [--seed 0] [--threads 2]
"""

from __future__ import annotations

import argparse
import gc
import random
import sys
import threading
import time
import traceback
import warnings

import torch
from torch import nn

from dynx import cudagraphs

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


KINDS = (Product, Pointwise, Dropping)


class Function:
    """A module, and what records it."""

    def __init__(self, generator, device, kinds):
        self.module = generator.choice(kinds)(device)
        self.device = device
        inputs = generator.choice(["copy", "memcpy_node", "patch", "auto"])
        config = cudagraphs.Config(inputs=inputs, outputs="clone")
        with torch.cuda.device(device):
            self.run = cudagraphs.fast_path(self.module, config=config)

    def __str__(self):
        return f"{type(self.module).__name__} on {self.device}"


class Worker:
    """Makes random actions on functions of its own, from one thread."""

    def __init__(self, seed, counts, kinds):
        self.random, self.kinds = random.Random(seed), kinds
        self.is_single = Dropping in kinds
        self.actions = {name: weight for name, weight in ACTIONS.items() if self.is_single or name != "capture_of_user"}
        self.devices = [torch.device("cuda", index) for index in range(torch.cuda.device_count())]
        self.streams = {device: [torch.cuda.Stream(device) for _ in range(3)] for device in self.devices}
        self.functions = [self.new_function() for _ in range(4)]
        self.kept: list[tuple[str, torch.Tensor, torch.Tensor, torch.cuda.Event]] = []
        self.counts = counts
        self.taken: list[torch.Tensor] = []

    def new_function(self):
        return Function(self.random, self.random.choice(self.devices), self.kinds)

    def act(self):
        name = self.random.choices(*zip(*self.actions.items(), strict=True))[0]
        self.counts[name] = self.counts.get(name, 0) + 1
        getattr(self, name)()
        if len(self.kept) > 20:
            self.compare()

    def call(self):
        """Call a function on a random stream, eagerly and recorded, with another device current now and then."""
        function = self.random.choice(self.functions)
        device = function.device
        stream = self.random.choice([*self.streams[device], torch.cuda.default_stream(device)])
        is_random, seed = isinstance(function.module, Dropping), self.random.randrange(1000)
        with torch.cuda.stream(stream), torch.no_grad():
            x = torch.randn(function.module.shape).to(device)
            if self.random.random() < 0.2:
                torch.cuda._sleep(1_000_000)
            if is_random:
                torch.cuda.manual_seed_all(seed)
            expected = function.module(x)
            if is_random:
                torch.cuda.manual_seed_all(seed)
            current = self.random.choice(self.devices) if stream == torch.cuda.default_stream(device) else device
            with torch.cuda.device(current):
                result = function.run(x)
            event = stream.record_event()
            result.record_stream(torch.cuda.default_stream(device))
            expected.record_stream(torch.cuda.default_stream(device))
        self.kept.append((str(function), result, expected, event))

    def compare(self):
        for name, result, expected, event in self.kept:
            event.synchronize()
            if not torch.allclose(result, expected, **TOLERANCE):
                raise AssertionError(f"{name}: {int((result != expected).sum())} of {result.numel()} elements differ")
        self.kept.clear()
        if not all(bool((block == 7).all()) for block in self.taken):
            raise AssertionError("a replay has written to memory of somebody else")

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
        torch._C._cuda_clearCublasWorkspaces()

    def close(self):
        self.random.choice(self.functions).run.close()

    def replace(self):
        """Delete a function, perhaps while it runs, and make another one."""
        index = self.random.randrange(len(self.functions))
        self.functions[index] = self.new_function()

    def rebind(self):
        """Assign another parameter to a module."""
        module = self.random.choice(self.functions).module
        name, param = next(iter(module.named_parameters()))
        setattr(module, name, nn.Parameter(param.detach() * 1.1))

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
}


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
    options = parser.parse_args()
    warnings.simplefilter("ignore")  # of captures that fail on purpose
    failures: list[str] = []
    counts: dict[str, int] = {}
    until = time.monotonic() + options.seconds
    kinds = KINDS if options.threads == 1 else (Product, Pointwise)
    workers = [Worker(options.seed * 100 + number, counts, kinds) for number in range(options.threads)]
    threads = [threading.Thread(target=work, args=(worker, until, failures)) for worker in workers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(f"seed {options.seed}, {options.threads} threads, {torch.cuda.device_count()} devices:", counts)
    for failure in failures:
        print(failure)
    return int(bool(failures))


if __name__ == "__main__":
    sys.exit(main())
