"""Random programs with and without what-ifs: outputs, graphs, guards, bytecode, counters, profile and logs must be the same.

A program is a function or module of random statements, compiled with random options, and called with arguments that change:
sizes, numbers, texts, lists, attributes, globals, modes. Its statements branch on values, loop over sizes, break the graph and
draw random numbers.

python tests/fuzz/what_ifs.py [--programs 100] [--seed 0] [--device cuda]
"""

from __future__ import annotations

import argparse
import contextlib
import io
import logging
import math
import random
import re
import sys
import types
import warnings
from collections import Counter
from pathlib import Path

import torch
from torch._dynamo import convert_frame, output_graph, pgo, utils
from torch._dynamo.eval_frame import _debug_get_cache_entry_list

sys.path.insert(0, str(Path(__file__).parents[1]))
from support.unnumbered import code_of, normalized

from dynx._torch.hooks import is_retracing
from dynx._torch.shapes.code_state import plain
from dynx.session import Watch

STATEMENTS = (
    "x = x * n",
    "x = x + f",
    "x = torch.tanh(x)",
    "x = x * GLOBAL['scale']",
    "x = x + self.step",
    "self.step += 1",
    "self.seen.append(n)",
    "x = x * len(self.seen)",
    "x = x + self.buffer",
    "x = x @ torch.ones(x.size(-1), 4)",
    "x = x.reshape(-1, x.size(-1))",
    "x = x[: x.size(0) // 2 + 1]",
    "x = torch.cat([x, items[0][: x.size(0), : x.size(1)]]) if items[0].size(0) >= x.size(0) else x",
    "if n > 4:\n        x = x * 2",
    "if x.sum() > 0:\n        x = x - 1",
    "if x.size(0) > 5:\n        x = x.sin()",
    "if mode == 'train':\n        x = torch.nn.functional.dropout(x, 0.5)",
    "for i in range(n):\n        x = x + i",
    "for row in x:\n        total = total + row.sum()",
    "print('step', n)",
    "total = total + x.sum().item()",
    "x = x + int(x.size(0))",
    "x = x[x > 0].reshape(-1, 1)",
    "x = x + torch.rand(x.shape)",
    "x = x + random.random()",
    "x = self.inner(x) if x.size(-1) == 4 else x",
    "warnings.warn(f'n is {n}')",
    "torch._dynamo.graph_break()",
    "x = x + len(items)",
    "x = x * (type(x) is torch.Tensor)",
    "x = [y * 2 for y in [x]][0]",
    "x = torch.func.vmap(lambda row: row * 2)(x)",
    "x = x.to(torch.float64) if n == 3 else x",
    "x = x.clone().add_(1)",
    "x = torch.stack([*items[:1], items[0]]).sum() + x",
    "x = x + self.cache.update(x).mean()",
    "x = x + x.sum(dim=0, keepdim=x.size(0) > 4)",
)
BASES = (
    ("torch.nn.Module", "super().__init__(); self.inner = torch.nn.Linear(4, 4)"),
    ("object", "self.inner = torch.tanh"),
)
SHAPES = ((3, 4), (5, 4), (6, 4), (7, 4), (1, 4), (6, 3), (2, 5))
CHANGES = (
    "GLOBAL['scale'] += 1",
    "model.step += 2",
    "model.buffer = torch.ones(1, 1)",
    "torch.set_grad_enabled(False)",
    "torch.set_default_device(torch.get_default_device())",
    "torch.set_default_dtype(torch.float64)",
    "torch.set_autocast_enabled(torch.get_default_device().type, True)",
    "torch.use_deterministic_algorithms(True)",
)
LOG_LINE = re.compile(r"[VIWEC]\d{4} ")
MOST = 7  # runs of a program; the last is with what-ifs
OPTIONS = ({}, {}, {}, {"dynamic": True}, {"dynamic": False}, {"fullgraph": True})


def source(seed: int) -> str:
    """Return the code of a random program: a class with the compiled method, and its calls."""
    draw = random.Random(seed)
    body = "\n    ".join(draw.sample(STATEMENTS, draw.randint(2, 6)))
    options = "".join(f", {name}={value}" for name, value in draw.choice(OPTIONS).items())
    base, init = draw.choice(BASES)
    calls = []
    for _ in range(draw.randint(2, 6)):
        if draw.random() < 0.2:
            calls.append(draw.choice(CHANGES))
        items = ", ".join(f"torch.ones({draw.randint(2, 8)}, 4)" for _ in range(draw.randint(1, 3)))
        numbers = f"{draw.randint(0, 6)}, {draw.choice([0.5, 1.0, 2.5])}, {draw.choice(['train', 'eval'])!r}"
        calls.append(f"attempt(lambda: call(torch.ones{draw.choice(SHAPES)}, {numbers}, [{items}]))")
    lines = "\n".join(calls)
    return f"""
import random, warnings
import torch
GLOBAL = {{'scale': 2}}
class Cache:
    kept = None
    def update(self, x):
        self.kept = x.flatten() if self.kept is None else torch.cat([self.kept, x.flatten()])
        return self.kept
class Model({base}):
    def __init__(self):
        {init}
        self.step, self.seen, self.buffer, self.cache = 0, [], torch.ones(1), Cache()
    def run(self, x, n, f, mode, items):
        return step(self, x, n, f, mode, items)
def step(self, x, n, f, mode, items):
    total = 0
    {body}
    return x, total
def attempt(call):
    try:
        print(call())
    except Exception as error:
        print(type(error).__name__, str(error)[:300])
torch.manual_seed(0); random.seed(0)
model = Model()
call = torch.compile(model.run, backend="eager"{options})
{lines}
print(model.step, model.seen, model.cache.kept, random.random(), torch.rand(1))
"""


def ambient(device: str | None) -> None:
    """Set the global state that programs change: modes, default device and dtype, autocast, deterministic algorithms."""
    torch.set_grad_enabled(True)
    torch.set_default_device(device)
    torch.set_default_dtype(torch.float32)
    torch.set_autocast_enabled(torch.get_default_device().type, False)
    torch.use_deterministic_algorithms(False)


def observe(text: str, watch: contextlib.AbstractContextManager[object], device: str | None = None) -> dict[str, object]:
    """Run a program after a reset, and return everything that what-ifs might change."""
    torch._dynamo.reset()
    ambient(device)
    utils.counters.clear()
    utils.clear_compilation_metrics()
    graphs, bytecode = [], []
    original = output_graph.OutputGraph.call_user_compiler

    def recording(self, gm, *args, **kwargs):
        if not is_retracing():
            graphs.append(normalized(gm.print_readable(print_output=False)))
        return original(self, gm, *args, **kwargs)

    out, log = io.StringIO(), io.StringIO()
    module = types.ModuleType("program")
    module.__file__ = "program.py"
    sys.modules["program"] = module
    hook = convert_frame.register_bytecode_hook(lambda old, new: bytecode.append(code_of(new)))
    output_graph.OutputGraph.call_user_compiler = recording
    torch._logging.set_logs(recompiles=True, graph_breaks=True, dynamic=logging.INFO)
    for name, logger in logging.root.manager.loggerDict.items():
        # structured traces have times and hashes of times
        for handler in getattr(logger, "handlers", ()) if name.startswith("torch") and name != "torch.__trace" else ():
            if isinstance(handler, logging.StreamHandler):
                handler.setStream(log)
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out), warnings.catch_warnings(), watch:
            warnings.simplefilter("default")
            exec(compile(text, module.__file__, "exec"), module.__dict__)
    finally:
        torch._logging.set_logs()
        output_graph.OutputGraph.call_user_compiler = original
        hook.remove()
        ambient(None)
    codes = [code for reference in convert_frame.input_codes.seen if (code := reference()) is not None]
    guards = [normalized(str(entry.guard_manager)) for code in codes for entry in _debug_get_cache_entry_list(code)]
    printed = out.getvalue().splitlines()
    logged = [*log.getvalue().splitlines(), *filter(LOG_LINE.match, printed)]
    return {
        "output": [normalized(line) for line in printed if not LOG_LINE.match(line)],
        "log": [normalized(line.partition("] ")[2]) for line in logged],
        "graphs": graphs,
        "bytecode": bytecode,
        "guards": sorted(guards),
        "counters": {name: {normalized(key): n for key, n in values.items()} for name, values in utils.counters.items()},
        "compiles": [(each.co_name, each.guard_count, each.graph_op_count) for each in utils.get_compilation_metrics()],
        "profile": {str(code[1:4]): dict(sizes) for code, sizes in plain(pgo._CODE_STATE or {}).items()},
        "globals": sorted(normalized(name) for name in vars(module)),
        "registry": sorted(map(str, vars(module).get("__warningregistry__", {}))),
    }


def compare(seed: int, device: str | None = None) -> tuple[list[str], int]:
    """Run a program with and without what-ifs; return what differs, and how many fixes were tried."""
    text = source(seed)
    watch = Watch(what_if=math.inf)
    runs: list[dict[str, object]] = []
    # runs fill caches of torch until two are the same; all are called from one line, which torch logs
    for number in range(MOST):
        settled = number > 1 and runs[-1] == runs[-2]
        runs.append(observe(text, watch if settled or number == MOST - 1 else Watch(), device))
        if settled:
            break
    without, with_them = runs[-2:]
    different = [name for name, value in without.items() if with_them[name] != value]
    troubles = [f"{each.what}: {each.why}" for each in watch.troubles]
    return [*different, *troubles], len(watch.what_ifs)


def main() -> None:
    """Compare random programs; exit with 1 if one differs."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--programs", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", help="the default device of torch")
    arguments = parser.parse_args()
    total: Counter[str] = Counter()
    for seed in range(arguments.seed, arguments.seed + arguments.programs):
        different, tried = compare(seed, arguments.device)
        total["programs"] += 1
        total["with what-ifs"] += tried > 0
        total["what-ifs"] += tried
        if different:
            total["different"] += 1
            print(f"seed {seed}: {different}")
    print(f"torch {torch.__version__}: {dict(total)}")
    sys.exit(bool(total["different"]))


if __name__ == "__main__":
    main()
