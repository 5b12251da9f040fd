"""Random calls under random circumstances: what `would_recompile` says must be what the call then does.

Between calls modules get hooks, other attributes, parameters and modes; globals and settings of torch change; calls are made
under dispatch modes, function modes, stances, autocast, other grad modes and settings of Dynamo.

python tests/fuzz/verdicts.py [--calls 1000] [--seed 0]
"""

from __future__ import annotations

import argparse
import contextlib
import random
import sys
import warnings
from collections import Counter

import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

import dynx
from dynx import guards

CALLS_OF_A_PROGRAM = 40
SCALE = 2


class Compilations:
    """A backend that counts what it compiles."""

    def __init__(self):
        self.count = 0

    def __call__(self, gm, inputs):
        self.count += 1
        return gm.forward


class Watching(TorchDispatchMode):
    def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
        return operator(*args, **(kwargs or {}))


class Infrastructure(Watching):
    @classmethod
    def ignore_compile_internals(cls):
        return True


class Functions(TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        return function(*args, **(kwargs or {}))


class Inner(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.factor = nn.Linear(3, 3), 1.0

    def forward(self, x):
        return self.linear(x) * self.factor


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.dropout = Inner(), nn.Dropout(0.5)
        self.sizes, self.options = [1, 2], {"scale": 1}

    def forward(self, x, n=1, *, mask=None):
        x = self.dropout(self.inner(x)) * n * self.options["scale"] + len(self.sizes)
        return x if mask is None else x * mask


def function(x, n=1, *, mask=None):
    x = x.sin() * n * SCALE
    return x if mask is None else x + mask.sum()


def breaking(x, n=1, *, mask=None):
    x = x * n
    torch._dynamo.graph_break()
    return x.cos() if mask is None else x * mask


def tripled(module, *args):
    """A hook: of a forward pass, or before it."""
    return args[-1] * 3 if isinstance(args[-1], torch.Tensor) else None


def make_input(rng):
    shape = rng.choice([(3,), (2, 3), (4, 3), (1, 3)])
    x = torch.ones(shape, dtype=rng.choice([torch.float32] * 5 + [torch.float64]), requires_grad=rng.random() < 0.3)
    return x if rng.random() < 0.8 else x.detach().t().contiguous().t()


def make_call(rng):
    keywords = rng.choice([{}, {}, {"n": 2}, {"n": 2.5}, {"n": True}, {"mask": torch.ones(3)}, {"mask": None}])
    return (make_input(rng),), keywords


def change(rng, compiled, net, hooks):
    """Change something that a call may depend on."""
    kind = rng.randrange(22)
    if kind == 0:
        torch._dynamo.reset()
    elif kind == 1:
        globals()["SCALE"] = rng.choice([2, 3])
    elif kind == 2:
        guards.reset(compiled)
    elif kind == 3 and (entries := guards.inspect(compiled).entries):
        guards.evict(rng.choice(entries))
    elif kind == 4:
        net.train(rng.random() < 0.5)
    elif kind == 5:
        net.inner.factor = rng.choice([1.0, 2.0, 3])
    elif kind == 6:
        net.options = {"scale": rng.choice([1, 2])}
    elif kind == 7:
        net.sizes[:] = [0] * rng.randrange(3)
    elif kind == 8:
        net.inner.linear.weight = nn.Parameter(torch.ones(3, 3))
    elif kind == 9:
        net.inner.linear.requires_grad_(rng.random() < 0.5)
    elif kind == 10:
        net.inner.linear = rng.choice([nn.Linear(3, 3), nn.Identity()])
        if not hasattr(net.inner.linear, "weight"):
            net.inner.linear.weight = nn.Parameter(torch.ones(3, 3))
    elif kind == 11:
        target = rng.choice([net, net.inner])
        register = rng.choice([target.register_forward_hook, target.register_forward_pre_hook])
        hooks.append(register(tripled))
    elif kind == 12 and hooks:
        hooks.pop().remove()
    elif kind == 13:
        torch.use_deterministic_algorithms(rng.random() < 0.3)


def circumstances(rng):
    """Return a context in which a call is made, and its name."""
    makers = {
        "plain": contextlib.nullcontext,
        "no_grad": torch.no_grad,
        "inference_mode": torch.inference_mode,
        "autocast": lambda: torch.autocast("cpu", dtype=torch.bfloat16),
        "dispatch mode": Watching,
        "infrastructure mode": Infrastructure,
        "function mode": Functions,
        "device": lambda: torch.device("cpu"),
        "disable": lambda: torch._dynamo.config.patch(disable=True),
        "dynamo config": lambda: torch._dynamo.config.patch(capture_scalar_outputs=True),
        "force_eager": lambda: torch.compiler.set_stance("force_eager"),
        "eager_on_recompile": lambda: torch.compiler.set_stance("eager_on_recompile"),
        "fail_on_recompile": lambda: torch.compiler.set_stance("fail_on_recompile"),
        "saved tensor hooks": lambda: torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t),
    }
    name = rng.choice(["plain"] * 12 + list(makers))
    return name, makers[name]


def ids_of(compiled):
    return {entry.id for entry in guards.inspect(compiled).entries if entry.resumes is None}


def check_program(seed, outcomes):
    """Make calls of one program; return what is wrong with the first verdict that is."""
    rng = random.Random(seed)
    torch._dynamo.reset()
    torch.use_deterministic_algorithms(False)
    compilations, net = Compilations(), Net()
    target = rng.choice([net, net, function, breaking])
    compile, options = rng.choice([(torch.compile, {}), (dynx.compile, {"key": object()})])
    compiled = compile(target, backend=compilations, dynamic=rng.choice([False, None, True]), **options)
    calls, hooks = [make_call(rng) for _ in range(4)], []
    for number in range(CALLS_OF_A_PROGRAM):
        change(rng, compiled, net, hooks)
        args, keywords = rng.choice(calls) if rng.random() < 0.7 else make_call(rng)
        name, context = circumstances(rng)
        with context():
            verdict = dynx.would_recompile(compiled, *args, **keywords)
            before, raised, entries = compilations.count, None, ids_of(compiled)
            try:
                compiled(*args, **keywords)
            except Exception as error:  # noqa: BLE001 - the program may not fit together; then eager code raises too
                raised = error
        compiled_now = compilations.count > before
        outcomes[verdict.outcome, name] += 1
        if verdict.outcome == "unknown":
            continue
        if raised is not None and not compiled_now:
            outcomes["raised"] += 1
            continue
        new = ids_of(compiled) - entries  # of the function itself; `unknown` names what torch may compile besides
        outcomes["partly unknown"] += bool(verdict.unknown)
        if bool(verdict) != bool(new) or (not verdict.unknown and compiled_now != bool(new)):
            return f"seed {seed}, call {number} under {name}: said {verdict}; new {new}, compiled: {compiled_now}, {raised}"
    for hook in hooks:
        hook.remove()
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    outcomes, wrong = Counter(), []
    programs = -(-options.calls // CALLS_OF_A_PROGRAM)
    for number in range(programs):
        if (problem := check_program(options.seed * 100_000 + number, outcomes)) is not None:
            wrong.append(problem)
            print(problem)
    kinds = Counter()
    for key, count in outcomes.items():
        kinds[key[0] if isinstance(key, tuple) else key] += count
    calls = sum(count for key, count in outcomes.items() if isinstance(key, tuple))
    print(f"{programs} programs, {calls} calls: {dict(kinds)}, {len(wrong)} wrong")
    torch.use_deterministic_algorithms(False)
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
