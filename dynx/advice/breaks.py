"""Advice rules DX2xx and DX5xx: causes of graph breaks, in the user's code and in libraries, and how to avoid them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import NamedTuple

from dynx.advice.rule import BreakRule, RuleAtLine
from dynx.records.compile import Compile
from dynx.records.finding import Finding
from dynx.records.graph_break import GraphBreak

_PRINTS = re.compile(
    r"^(?:print|_?warnings\.warn\w*|logging(?:\.\w+)*|loguru(?:\.\w+)*|builtins\.print|sys\.std(?:out|err)\.\w+)$"
)
# matched against torch's `gb_type` only: explanations of other graph breaks mention mutation too
_MUTATION = re.compile(r"^(?:Failed to (?:mutate|set tensor)|setattr\(\) on|.*\b[Mm]utating\b|.*STORE_ATTR|missing_mp_ass)")
_MUTATED = re.compile(r"in-?place view|item assignment|__(?:set|del)(?:item|attr)__")
_MUTATED_KINDS = ("Unsupported function call (delayed)", "Unsupported method call", "C-implemented special method")


def _is_print(graph_break: GraphBreak) -> bool:
    return bool(_PRINTS.match(graph_break.callee or "")) or graph_break.kind.startswith(("logging.Logger", "warnings.warn"))


def _is_item(graph_break: GraphBreak) -> bool:
    reads = graph_break.kind.startswith("Data dependent operator") and "_local_scalar_dense" in graph_break.explanation
    return reads or bool(re.search(r"Tensor\.(?:item|tolist)|\.item\(\)|tolist", f"{graph_break.kind} {graph_break.reason}"))


def _is_mutation(graph_break: GraphBreak) -> bool:
    explained = graph_break.kind.startswith(_MUTATED_KINDS) and _MUTATED.search(graph_break.explanation)
    return bool(_MUTATION.match(graph_break.kind) or explained)


def _is_data_dependent(graph_break: GraphBreak) -> bool:
    return graph_break.kind.lower().startswith(("data-dependent", "data dependent", "could not guard on data-dependent"))


def _is_builtin(graph_break: GraphBreak) -> bool:
    text = graph_break.explanation
    return graph_break.kind.startswith(("Failed to trace builtin operator", "Call to a time function")) or (
        graph_break.kind.startswith("Attempted to call function marked as skipped")
        and bool(re.search(r"builtin `|C/C\+\+", text))
    )


def _is_disabled(graph_break: GraphBreak) -> bool:
    return graph_break.kind.startswith(
        (
            "Skip calling `torch.compiler.disable()`",
            "Attempted to call function marked as skipped",
            "Skip inlining `torch.compiler.disable()`",
            "Attempted to inline function marked as skipped",
        )
    )


def _name(graph_break: GraphBreak) -> str:
    if graph_break.kind.startswith("logging.Logger"):
        return "a log call"
    return f"{graph_break.callee}()" if graph_break.callee else graph_break.reason


def _advise(text: str) -> Callable[[GraphBreak], str]:
    return lambda graph_break: text.format(name=_name(graph_break), library=graph_break.location.library)


def _builtin_advice(graph_break: GraphBreak) -> str:
    if (graph_break.callee or "").startswith(("time.", "random.")):
        return "call it outside and pass the value in"
    return "call it outside, or wrap it as a torch.library.custom_op"


def _library_advice(graph_break: GraphBreak) -> str:
    return f"report it to {graph_break.location.library}, or call it outside the compiled function"


# The first rule that applies is used: rules about the location of a graph break come before rules about its reason.
RULES: tuple[BreakRule, ...] = (
    BreakRule(
        "DX207",
        "torch.compile on a generator function",
        lambda b: b.kind == "Attempt to trace generator",
        lambda b: f"{b.location.function} is a generator: it runs eagerly",
        _advise("compile the body of one iteration, not the generator"),
    ),
    BreakRule(
        "DX501",
        "a library breaks the graph",
        lambda b: b.location.library is not None,
        lambda b: f"{b.location.library} breaks the graph: {_name(b)}",
        _library_advice,
    ),
    BreakRule(
        "DX206",
        "a graph break where torch cannot resume",
        lambda b: b.block is not None and not (b.resumable or b.fatal or b.kind == "Observed exception"),
        lambda b: f"{_name(b)} inside a {b.block}: {b.chain[0].function if b.chain else 'the function'} continues eagerly",
        lambda b: f"move it out of the {b.block}, or out of the function",
    ),
    BreakRule(
        "DX201",
        "a print or log call breaks the graph",
        _is_print,
        lambda b: f"{_name(b)} splits the graph in two",
        _advise("drop it, or move it out of the compiled function"),
    ),
    BreakRule(
        "DX202",
        "a tensor is converted to a Python number",
        _is_item,
        lambda b: "reading a tensor's value breaks the graph",
        _advise("keep it a tensor; or config.capture_scalar_outputs = True"),
    ),
    BreakRule(
        "DX203",
        "Python branches on the value of a tensor",
        _is_data_dependent,
        lambda b: "a Python branch depends on a tensor's value",
        _advise("use torch.where or torch.cond"),
    ),
    BreakRule(
        "DX209",
        "an output size depends on the data",
        lambda b: b.kind.startswith("Dynamic shape operator"),
        lambda b: f"the output size of {b.callee or 'the operator'} depends on the data",
        _advise("config.capture_dynamic_output_shape_ops = True, or mask with torch.where"),
    ),
    BreakRule(
        "DX204",
        "a C function has no Python code to trace",
        _is_builtin,
        lambda b: f"{_name(b)} has no Python code to trace",
        _builtin_advice,
    ),
    BreakRule(
        "DX205",
        "a disabled or skipped function is called",
        _is_disabled,
        lambda b: f"{_name(b)} is disabled or skipped: it is not traced",
        _advise("call it outside the compiled function"),
    ),
    BreakRule(
        "DX208",
        "a mutation that Dynamo does not support",
        _is_mutation,
        lambda b: b.explanation.splitlines()[0] if b.explanation else b.reason,
        _advise("make this change before the call"),
    ),
)


def rule_of(graph_break: GraphBreak) -> BreakRule | None:
    """Return the first advice rule that applies to a graph break, or None."""
    return next((rule for rule in RULES if rule.applies(graph_break)), None)


def find(breaks: Iterable[GraphBreak], compiles: Iterable[Compile]) -> tuple[Finding, ...]:
    """Return the findings for graph breaks: one for each rule and source line, with the compile time that the breaks cost."""
    merged: dict[RuleAtLine, Finding] = {}
    costs = _Costs(tuple(compiles))
    for graph_break in breaks:
        rule = rule_of(graph_break)
        if rule is None:
            continue
        finding = Finding(
            rule.id,
            rule.title_of(graph_break),
            graph_break.location,
            costs.seconds(graph_break),
            _evidence(graph_break),
            rule.advice(graph_break),
            graph_break.count,
        )
        key = RuleAtLine(rule.id, graph_break.location.own.file, graph_break.location.own.line)
        merged[key] = _join(merged[key], finding) if key in merged else finding
    return tuple(merged.values())


class _AttemptKey(NamedTuple):
    """Key of one tracing attempt: the key of its compilation, and the index of the attempt in that compilation."""

    compile: tuple[int, str]
    number: int


class _Costs:
    """Attributes compile time to graph breaks, each second to at most one graph break.

    The cost of a graph break is the tracing attempt that it discarded, plus the compilation of its resume function. If torch
    cannot resume after it, the cost is the whole compilation. Recompiles do not count: they belong to the guard that failed.
    """

    def __init__(self, compiles: tuple[Compile, ...]) -> None:
        self._first = [compile for compile in compiles if not compile.is_recompile]
        self._counted: set[tuple[int, str]] = set()  # keys of compilations
        self._attempts: set[_AttemptKey] = set()

    def seconds(self, graph_break: GraphBreak) -> float:
        total = 0.0
        for compile in self._first:
            if compile.key in self._counted:
                continue
            if _is_caused_by(compile, graph_break):
                self._counted.add(compile.key)
                total += compile.seconds - sum(
                    attempt.seconds for attempt in compile.attempts if _AttemptKey(compile.key, attempt.index) in self._attempts
                )
            elif compile.key in graph_break.compiles and compile.resumes is None:
                total += self._discarded(compile, graph_break)
        return total

    def _discarded(self, compile: Compile, graph_break: GraphBreak) -> float:
        for attempt in compile.attempts:
            key = _AttemptKey(compile.key, attempt.index)
            if attempt.outcome == "restarted" and attempt.reason == graph_break.reason and key not in self._attempts:
                self._attempts.add(key)
                return attempt.seconds
        return 0.0


def _is_caused_by(compile: Compile, graph_break: GraphBreak) -> bool:
    if compile.resumes is None:
        return not graph_break.resumable and compile.outcome in ("skipped", "failed") and compile.key in graph_break.compiles
    return any(line.file == compile.location.file and line.line == compile.resumes for line in graph_break.chain)


def _join(first: Finding, second: Finding) -> Finding:
    return Finding(
        first.rule,
        first.title,
        first.location,
        first.seconds + second.seconds,
        first.evidence + second.evidence,
        first.advice,
        first.count + second.count,
    )


def _evidence(graph_break: GraphBreak) -> tuple[str, ...]:
    fatal = "the compilation failed: fullgraph=True allows no graph break" if graph_break.fatal else ""
    lines = [fatal, graph_break.reason, graph_break.explanation, *(f"torch suggests: {hint}" for hint in graph_break.hints)]
    if len(graph_break.chain) > 1:
        lines.append("reached through " + " > ".join(map(str, graph_break.chain)))
    return tuple(line for line in lines if line)
