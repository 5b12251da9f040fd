"""Texts on the compile time of a run: by phase of torch.compile, by kind of compilation; and hits of the caches on disk."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from dynx.records import Backward, Compile, RunRecords
from dynx.report import _words as words

# a backend is shown under its own name
_NAMES = {"trace": "Dynamo", "aot": "AOTAutograd", "autotuning": "autotuning", "kernels": "C++ and Triton compilers"}
_CACHES = {"fx_graph": "FX graph cache", "aot_autograd": "AOTAutograd cache"}
_PLURALS = {"hit": "hits", "miss": "misses", "bypass": "bypasses"}
_CHECKS_LEAST = 0.1  # share of the compile time from which tests of CPU instructions are shown: they are a part of a phase
_LEAST = 0.01  # share of the compile time from which a phase is shown: below it, a phase is not worth the reader's time


@dataclass(frozen=True, slots=True)
class Share:
    """A part of the compile time, such as "inductor", with its seconds."""

    name: str
    seconds: float

    def __str__(self) -> str:
        return f"{self.name} {words.seconds(self.seconds)}"


def by_phase(run: RunRecords) -> tuple[Share, ...]:
    """Return the seconds of each phase, in the order in which torch.compile runs them; omit phases below 1 % of the time.

    Backward graphs that are compiled at the first `backward()` are a phase of their own: torch does not report their phases.
    """
    total: dict[str, float] = {"Dynamo": 0.0, "AOTAutograd": 0.0}
    for compile in run.compiles:
        for phase in ("trace", "aot", "backend", "autotuning", "kernels"):
            name = _NAMES.get(phase) or _backend(compile)
            total[name] = total.get(name, 0.0) + compile.phases.get(phase, 0.0)
    total["guards"] = sum(compile.phases.get("guards", 0.0) for compile in run.compiles)
    total["backward graphs"] = sum(backward.seconds for backward in run.backwards)
    return _shown(total, run.compile_seconds)


def by_kind(run: RunRecords) -> tuple[Share, ...]:
    """Return the seconds spent on four kinds of compilations: first compiles, recompiles, resume functions, and dynx's own.

    Empty if all compilations are of the same kind and none is by dynx.
    """
    recompiled = {recompile.key for recompile in run.recompiles}
    resuming = {compile.key for compile in run.compiles if compile.resumes is not None}
    total = {"first compiles": 0.0, "recompiles": 0.0, "resume functions": 0.0, "by dynx itself": 0.0}
    of_dynx = {compile.key for compile in run.compiles if compile.of_dynx}
    records: tuple[Compile | Backward, ...] = (*run.compiles, *run.backwards)
    for record in records:
        key = (record.generation, record.id)
        name = "recompiles" if key in recompiled else "resume functions" if key in resuming else "first compiles"
        name = "by dynx itself" if key in of_dynx else name
        total[name] += record.seconds
    shares = _shown(total, run.compile_seconds)
    return shares if len(shares) > 1 or of_dynx else ()


def caches(run: RunRecords) -> tuple[str, ...]:
    """Return the results of lookups in the compile caches on disk as short texts: `FX graph cache 3 hits, 1 miss`."""
    counts: dict[str, Counter[str]] = {}
    for event in run.caches:
        counts.setdefault(event.cache, Counter())[event.result] += event.count
    return tuple(f"{name} {_results(counts[cache])}" for cache, name in _CACHES.items() if cache in counts)


def isa_checks(run: RunRecords) -> tuple[str, ...]:
    """Return the time of inductor's tests of CPU instructions, and what saves it; empty if it is short.

    If all tests passed that the setting skips, torch chooses the same instructions without them.
    """
    seconds = sum(check.seconds for check in run.isa_checks)
    if not seconds or seconds < _CHECKS_LEAST * run.compile_seconds:
        return ()
    text = f"tests of CPU instructions {words.seconds(seconds)}"
    skippable = [check for check in run.isa_checks if check.is_skippable]
    if not skippable or not all(check.passed for check in skippable):
        return (text,)
    part = words.seconds(sum(check.seconds for check in skippable))
    return (f"{text}: TORCHINDUCTOR_VEC_ISA_OK=1 skips {'them' if len(skippable) == len(run.isa_checks) else f'{part} of it'}",)


def longest(run: RunRecords) -> str:
    """Return the name and seconds of the phase that took longest, as text; empty if there is only one phase."""
    shares = by_phase(run)
    return str(max(shares, key=lambda share: share.seconds)) if len(shares) > 1 else ""


def _backend(compile: Compile) -> str:
    if compile.backend == "inductor":
        return "inductor"
    return f"backend {compile.backend}" if compile.backend else "backend"


def _results(counts: Counter[str]) -> str:
    return ", ".join(words.plural(counts[result], result, plural) for result, plural in _PLURALS.items() if counts[result])


def _shown(total: dict[str, float], whole: float) -> tuple[Share, ...]:
    return tuple(Share(name, seconds) for name, seconds in total.items() if seconds > 0 and seconds >= _LEAST * whole)


def texts(run: RunRecords) -> tuple[tuple[str, ...], ...]:
    """Return the texts below the summary of a run, in groups: by phase, by kind of compilation, tests, caches, what-ifs."""
    kinds = ", ".join(map(str, by_kind(run)))
    tried = sum(what_if.seconds for what_if in run.what_ifs)
    what_ifs = (f"plus what-ifs {words.seconds(tried)}",) if tried else ()
    groups = (tuple(map(str, by_phase(run))), (f"({kinds})",) if kinds else (), isa_checks(run), caches(run), what_ifs)
    return tuple(group for group in groups if group)
