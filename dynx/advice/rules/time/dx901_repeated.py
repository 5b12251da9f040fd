"""Rule DX901: equal modules, such as the layers of a transformer, are compiled once each."""

from __future__ import annotations

from collections.abc import Iterator

from dynx.advice.rule import RunRule
from dynx.records.compile import Compile, Repeated
from dynx.records.finding import Finding
from dynx.records.run_records import RunRecords

# a finding is worth reading from this many seconds, and this share of the run's compile time
_LEAST_SECONDS, _LEAST_SHARE = 2.0, 0.2


def _find(run: RunRecords) -> Iterator[Finding]:
    for compile in run.compiles:
        repeated, saved = compile.repeated, _saved(compile)
        if repeated is None or repeated.differ or saved < max(_LEAST_SECONDS, _LEAST_SHARE * run.compile_seconds):
            continue
        title = f"{repeated.count} equal modules in {repeated.source} ({repeated.type_name}) are compiled once each"
        advice = f"compile them one by one, not the whole: {_code(repeated)}; one compilation serves all (not proven)"
        evidence = (
            f"they are {repeated.share:.0%} of the graph's {compile.nodes} operations; AOTAutograd and the backend took"
            f" {_backend(compile):.1f} s: about {saved:.1f} s less, if the time grows with the number of operations",
        )
        yield Finding(RULE.id, title, compile.location, saved, evidence, advice, called_from=compile.called_from)


def _backend(compile: Compile) -> float:
    return compile.phases.get("aot", 0.0) + compile.backend_seconds


def _saved(compile: Compile) -> float:
    """Estimate the seconds that one compilation for all modules would save."""
    repeated = compile.repeated
    if repeated is None or repeated.count < 2:
        return 0.0
    return _backend(compile) * repeated.share * (1 - 1 / repeated.count)


def _code(repeated: Repeated) -> str:
    """Return the code that compiles each module on its own."""
    if repeated.type_name.startswith("torch.nn."):  # torch 2.11 and 2.13 compile nothing after .compile() of such a module
        return f"for i, module in enumerate({repeated.source}): {repeated.source}[i] = torch.compile(module)"
    return f"for module in {repeated.source}: module.compile()"


RULE = RunRule(id="DX901", title="equal modules are compiled once each", find=_find)
