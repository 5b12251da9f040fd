"""Runs programs with mistakes, and reads the findings that comments such as `# DX101` in a program expect."""

from __future__ import annotations

import contextlib
import io
import os
import re
import sys
import types
import warnings
from pathlib import Path

import torch
import torch._functorch.config
import torch._inductor.config

import dynx

PROGRAMS = Path(__file__).parent / "programs"
_RULE = r"(DX\d{3})(?:\s*\[torch([^\]]*)\])?"
_MARKER = re.compile(rf"#\s*({_RULE}(?:\s*,\s*{_RULE})*)\s*$")


def expected(source: str) -> set[tuple[str, int]]:
    """Return `(rule, line)` for every line that ends with a marker: `# DX101` or `# DX101, DX202`.

    In `# DX402 [torch>=2.13,<2.15]`, the rule applies to these versions only: others behave differently.
    """
    findings = set()
    for number, line in enumerate(source.splitlines(), 1):
        if match := _MARKER.search(line):
            findings |= {(rule, number) for rule, versions in re.findall(_RULE, match[1]) if _is_installed(versions)}
    return findings


def unsupported(source: str) -> str:
    """Return why a program cannot run with the installed torch, from `Requires torch>=2.13: …` in its docstring; else empty."""
    match = re.search(r"^Requires torch(\S+): (.+)$", source, re.M)
    return match[2] if match and not _is_installed(match[1]) else ""


def _is_installed(versions: str | None) -> bool:
    """Return whether the installed torch is in the range of versions."""
    installed = torch.torch_version.TorchVersion(torch.__version__)
    bounds = versions.split(",") if versions else []
    return all(
        installed >= bound.removeprefix(">=") if bound.startswith(">=") else installed < bound.removeprefix("<")
        for bound in bounds
    )


def run(source: str, file: str) -> dynx.Run:
    """Run a program as the code of a module under `dynx.watch(stale=True)`; its output is discarded.

    A program that begins with the comment `# dynx run --detail full` runs with that detail.
    """
    detail = "full" if source.startswith("# dynx run --detail full\n") else "normal"
    module = types.ModuleType("program")
    module.__file__ = file
    with (
        restored_torch(),
        warnings.catch_warnings(),
        dynx.watch(detail=detail, stale=True) as watch,
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()),
    ):
        warnings.simplefilter("ignore")
        sys.modules["program"] = module  # torch imports the module of a global by its name
        exec(compile(source, file, "exec"), module.__dict__)
    return watch.run


def findings_of(run: dynx.Run) -> set[tuple[str, int]]:
    """Return the findings as `(rule, line of the user's own code)`."""
    return {(finding.rule, finding.location.own.line) for finding in run.findings}


@contextlib.contextmanager
def restored_torch():
    """Restore what a program may change: torch's global state, configuration and cache, the environment, sys.path."""
    torch._dynamo.reset()
    environment, path, modules = dict(os.environ), list(sys.path), set(sys.modules)
    state = [
        (torch.get_default_dtype, torch.set_default_dtype),
        (torch.is_grad_enabled, torch.set_grad_enabled),
        (torch.get_num_threads, torch.set_num_threads),
        (torch.get_float32_matmul_precision, torch.set_float32_matmul_precision),
        (torch.are_deterministic_algorithms_enabled, torch.use_deterministic_algorithms),
    ]
    before = [read() for read, _ in state]
    configs = [torch._dynamo.config, torch._inductor.config, torch._functorch.config]
    copies = [config.get_config_copy() for config in configs]
    try:
        with torch.random.fork_rng(devices=[]):
            yield
    finally:
        for config, copy in zip(configs, copies, strict=True):
            config.load_config(copy)
        for value, (read, restore) in zip(before, state, strict=True):
            if read() != value:  # to set the precision to what it is changes the keys of torch's caches
                restore(value)
        torch._dynamo.reset()
        os.environ.clear()
        os.environ.update(environment)
        sys.path[:] = path
        for name in set(sys.modules) - modules:
            if name.split(".")[0] in ("program", "fakelib", "fakemetrics"):
                del sys.modules[name]
