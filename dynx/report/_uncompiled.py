"""Explain from the records of a run why nothing was compiled, with advice, or say that the reason is unknown."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from dynx.records import CompileUse, Location, RunRecords
from dynx.report import _words as words

_SHOWN = 5  # skipped functions that are listed; more are only counted
_CALL_IT = "call the function that torch.compile returns, not the one that it is given"
_UNKNOWN = "TORCH_LOGS=+dynamo prints what torch does"


class Why(NamedTuple):
    """A reason why nothing was compiled, with advice."""

    reason: str
    advice: str = ""


# part of torch's reason for skipping a function: the reason in plain words, and the advice
_SKIPS = {
    "tracing is disabled": ("torch._dynamo.config.disable is on", "unset TORCH_COMPILE_DISABLE, or set it to False"),
    "dispatch mode": ("a torch dispatch mode is active", "call the function outside of the mode"),
    "skipfiles": ("Dynamo skips its file", "compile a function of your own that calls it"),
    "no ops traced": (
        "its first call has no tensor operation to compile: torch runs later calls eagerly too",
        "nothing to do, or compile the function that computes, or call it first with arguments for which it computes",
    ),
    "no tensor": ("it has no tensor among its arguments", "compile the function that takes tensors"),
    "gives no reason": ("Dynamo skipped it, and torch gives no reason", _UNKNOWN),
    "generator": ("it is a generator function", "compile the functions that it calls"),
}


def is_uncompiled(run: RunRecords) -> bool:
    """Return whether a run has no compiled graph, and no finding, graph break or failed compilation that explains this."""
    return all(compile.outcome == "skipped" for compile in run.compiles) and not (run.findings or run.graph_breaks or run.eager)


def why(run: RunRecords) -> list[Why]:
    """Return the reasons why nothing was compiled; if the run shows none, one entry which says that the reason is unknown."""
    known = [*_skipped(run), *(reason for use in run.uses for reason in _of_use(use, run))]
    return known or [_unknown(run)]


def _skipped(run: RunRecords) -> Iterator[Why]:
    """Yield the reason and the advice for each function that Dynamo skipped."""
    skips = [(compile.location, compile.reason or "torch gives no reason") for compile in run.compiles]
    skips = list(dict.fromkeys(skips + [(skip.location, skip.reason) for skip in run.skipped]))
    for location, text in skips[:_SHOWN]:
        known = next((value for part, value in _SKIPS.items() if part in text.lower()), None)
        reason, advice = known or (f"Dynamo skipped it: {text}", "")
        modes = ", ".join(sorted({mode for use in run.uses for mode in use.modes})) if known == _SKIPS["dispatch mode"] else ""
        yield Why(f"{words.place(location)}  {location.function}: {reason}{f' ({modes})' if modes else ''}", advice)
    if len(skips) > _SHOWN:
        yield Why(f"and {words.plural(len(skips) - _SHOWN, 'more function')} that Dynamo skipped: --full shows all")


def _of_use(use: CompileUse, run: RunRecords) -> Iterator[Why]:
    """Yield reasons why nothing was compiled; `use` records the calls of torch.compile and of the functions it returned."""
    for text in use.raised:
        is_backend = text.startswith("InvalidBackend")
        yield Why(
            f"torch.compile raised {text.partition(', see ')[0]}",
            "torch._dynamo.list_backends() lists the backends" if is_backend else "",
        )
    for text in use.why_not:
        if text:
            yield Why(f"torch.compile returned functions as they are: {text}", "remove it, or unset the variable")
        else:
            yield Why("torch.compile returned functions as they are: torch disables it, and gives no reason", _UNKNOWN)
    if use.forced_eager:
        yield Why(f'the stance "force_eager" was set in a call{_at(use.eager_call)}', 'torch.compiler.set_stance("default")')
    if run.compiles or run.skipped:
        return
    if use.called:
        yield from _of_call(use, run)
    elif use.prepared and not use.forced_eager:
        functions = words.plural(use.prepared, "function was", "functions were")
        text = f"{functions} passed to torch.compile, but not called, or only under torch.compiler.disable or while traced"
        yield Why(f"{text}{_ended(run)}", "" if _ended(run) else _CALL_IT)
    elif not (use.prepared or use.raised or use.why_not or use.forced_eager):
        advice = "" if _ended(run) else "compile one: model = torch.compile(model)"
        yield Why(f"no call of torch.compile in this process returned a function{_ended(run)}", advice)


def _of_call(use: CompileUse, run: RunRecords) -> Iterator[Why]:
    if use.disabled:
        yield Why(f"torch._dynamo.config.disable was on in a call{_at(use.call)}", _SKIPS["tracing is disabled"][1])
    elif use.modes:
        modes = ", ".join(use.modes)
        yield Why(f"a torch dispatch mode was active in a call{_at(use.call)}: {modes}", _SKIPS["dispatch mode"][1])
    else:
        text = f"a compiled function was called{_at(use.call)}, and Dynamo compiled nothing; why is not known"
        yield Why(f"{text}: it may have been compiled or skipped before{_ended(run)}", _UNKNOWN)


def _unknown(run: RunRecords) -> Why:
    if not run.is_complete:
        return Why("why is not known: the program did not end, so that its use of torch.compile was not recorded")
    return Why(f"why is not known: the run does not have it{_ended(run)}", _UNKNOWN)


def _at(location: Location | None) -> str:
    return f" at {words.place(location)}" if location is not None else ""


def _ended(run: RunRecords) -> str:
    """Return text to append to a sentence if the program failed: `; the program ended with KeyError`; else an empty text."""
    outcome = str(run.end.get("outcome", ""))
    return "" if outcome in ("", "finished", "exit 0") else f"; the program ended with {outcome.removeprefix('raised ')}"
