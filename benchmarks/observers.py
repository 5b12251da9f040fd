"""What `dynx.watch()` costs: compile time at most 1.05x, steady-state calls at most 1.02x, peak memory at most +5 %.

In the first call of each compiled function, a watch notes where it was made, for 0.2 to 0.4 ms: "calls" begin after it.

python benchmarks/observers.py [--out benchmarks/results/observers.json]
"""

from __future__ import annotations

import contextlib
import gc
import resource
import subprocess
import sys
import time

import torch
from pairs import out_option, ratio, report

import dynx


def gpt2():
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    config = GPT2Config(n_layer=4, n_embd=64, n_head=2, vocab_size=128, bos_token_id=0, eos_token_id=0)
    return GPT2LMHeadModel(config).eval()


def compile_seconds(model, watch: bool) -> float:
    """Seconds for a first compile and a recompile with another length."""
    torch._dynamo.reset()
    gc.collect()
    compiled = torch.compile(model, backend="eager")
    with dynx.watch() if watch else contextlib.nullcontext(), torch.no_grad():
        start = time.perf_counter()
        for length in (8, 12):
            compiled(torch.ones(1, length, dtype=torch.long))
        return time.perf_counter() - start


def call_seconds(compiled, tokens, watch: bool, calls: int) -> float:
    with dynx.watch() if watch else contextlib.nullcontext(), torch.no_grad():
        compiled(tokens)
        start = time.perf_counter()
        for _ in range(calls):
            compiled(tokens)
        return time.perf_counter() - start


def small_call(watch: bool, compiled, x) -> float:
    return call_seconds(compiled, x, watch, 2000)


def peak_bytes(watch: bool) -> float:
    """Peak memory of a fresh process that compiles the model twice."""
    done = subprocess.run(
        [sys.executable, __file__, "--memory", "with" if watch else "without"], capture_output=True, text=True, check=True
    )
    return float(done.stdout.split()[-1])


def main() -> int:
    if "--memory" in sys.argv:
        compile_seconds(gpt2(), sys.argv[-1] == "with")
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
        return 0
    out = out_option(__doc__)
    model = gpt2()
    ratios = [
        ratio(
            "compile time, GPT-2",
            lambda: compile_seconds(model, True),
            lambda: compile_seconds(model, False),
            bound=1.05,
            pairs=45,  # compile times vary by a fifth from one compile to the next
        )
    ]
    torch._dynamo.reset()
    add = torch.compile(lambda x: x + 1, backend="eager")
    x = torch.ones(4)
    ratios.append(
        ratio("calls, one operation", lambda: small_call(True, add, x), lambda: small_call(False, add, x), bound=1.02, pairs=61)
    )
    compiled, tokens = torch.compile(model, backend="eager"), torch.ones(1, 8, dtype=torch.long)
    ratios.append(
        ratio(
            "calls, GPT-2",
            lambda: call_seconds(compiled, tokens, True, 40),
            lambda: call_seconds(compiled, tokens, False, 40),
            bound=1.02,
            pairs=61,  # many short pairs: a neighbour on the machine hits a few, not the median
        )
    )
    ratios.append(ratio("peak memory", lambda: peak_bytes(True), lambda: peak_bytes(False), bound=1.05, pairs=15))
    return report("dynx.watch() against no watch", ratios, out)


if __name__ == "__main__":
    sys.exit(main())
