"""DX2xx and DX5xx: why a graph ended early, and what keeps it whole."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from dynx.advice.rule import BreakRule
from dynx.records.compile import Compile
from dynx.records.finding import Finding
from dynx.records.graph_break import GraphBreak

_PRINTS = re.compile(
    r"^(?:print|_?warnings\.warn\w*|logging(?:\.\w+)*|loguru(?:\.\w+)*|builtins\.print|sys\.std(?:out|err)\.\w+)$"
)
# by kind alone: explanations of other breaks mention mutation too
_MUTATION = re.compile(r"^(?:Failed to (?:mutate|set tensor)|setattr\(\) on|.*\b[Mm]utating\b|.*STORE_ATTR|missing_mp_ass)")
_MUTATED = re.compile(r"in-?place view|item assignment|__(?:set|del)(?:item|attr)__")
_MUTATED_KINDS = ("Unsupported function call (delayed)", "Unsupported method call", "C-implemented special method")


def _is_print(found: GraphBreak) -> bool:
    return bool(_PRINTS.match(found.callee or "")) or found.kind.startswith(("logging.Logger", "warnings.warn"))


def _is_item(found: GraphBreak) -> bool:
    reads = found.kind.startswith("Data dependent operator") and "_local_scalar_dense" in found.explanation
    return reads or bool(re.search(r"Tensor\.(?:item|tolist)|\.item\(\)|tolist", f"{found.kind} {found.reason}"))


def _is_mutation(found: GraphBreak) -> bool:
    told = found.kind.startswith(_MUTATED_KINDS) and _MUTATED.search(found.explanation)
    return bool(_MUTATION.match(found.kind) or told)


def _is_data_dependent(found: GraphBreak) -> bool:
    return found.kind.lower().startswith(("data-dependent", "data dependent", "could not guard on data-dependent"))


def _is_builtin(found: GraphBreak) -> bool:
    text = found.explanation
    return found.kind.startswith(("Failed to trace builtin operator", "Call to a time function")) or (
        found.kind.startswith("Attempted to call function marked as skipped") and bool(re.search(r"builtin `|C/C\+\+", text))
    )


def _is_disabled(found: GraphBreak) -> bool:
    return found.kind.startswith(
        (
            "Skip calling `torch.compiler.disable()`",
            "Attempted to call function marked as skipped",
            "Skip inlining `torch.compiler.disable()`",
            "Attempted to inline function marked as skipped",
        )
    )


def _name(found: GraphBreak) -> str:
    if found.kind.startswith("logging.Logger"):
        return "a log call"
    return f"{found.callee}()" if found.callee else found.reason


def _advise(text: str) -> Callable[[GraphBreak], str]:
    return lambda found: text.format(name=_name(found), library=found.location.library)


def _builtin_advice(found: GraphBreak) -> str:
    if (found.callee or "").startswith(("time.", "random.")):
        return "call it outside and pass the value in"
    return "call it outside, or wrap it as a torch.library.custom_op"


def _library_advice(found: GraphBreak) -> str:
    return f"report it to {found.location.library}, or call it outside the compiled function"


# the first rule that applies wins: where and how it broke comes before what broke
RULES: tuple[BreakRule, ...] = (
    BreakRule(
        "DX207",
        "torch.compile on a generator function",
        lambda b: b.kind == "Attempt to trace generator",
        lambda b: f"{b.location.function} is a generator: it runs eagerly",
        _advise("compile the work of one round, not the generator"),
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
        "a break where torch cannot resume",
        lambda b: b.block is not None and not (b.resumable or b.fatal or b.kind == "Observed exception"),
        lambda b: f"{_name(b)} inside a {b.block}: {b.chain[0].function if b.chain else 'the function'} goes on eagerly",
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
        "a tensor becomes a Python number",
        _is_item,
        lambda b: "the graph stops to read a tensor's value",
        _advise("keep it a tensor; or config.capture_scalar_outputs = True"),
    ),
    BreakRule(
        "DX203",
        "Python branches on the value of a tensor",
        _is_data_dependent,
        lambda b: "Python decides by the value of a tensor",
        _advise("use torch.where or torch.cond"),
    ),
    BreakRule(
        "DX209",
        "the size of a result depends on data",
        lambda b: b.kind.startswith("Dynamic shape operator"),
        lambda b: f"{b.callee or 'the operator'} gives as many elements as the data say",
        _advise("config.capture_dynamic_output_shape_ops = True, or mask with torch.where"),
    ),
    BreakRule(
        "DX204",
        "a C function has no Python to trace",
        _is_builtin,
        lambda b: f"{_name(b)} has no Python code to trace",
        _builtin_advice,
    ),
    BreakRule(
        "DX205",
        "a disabled or skipped function is called",
        _is_disabled,
        lambda b: f"{_name(b)} is not traced on purpose",
        _advise("call it outside the compiled function"),
    ),
    BreakRule(
        "DX208",
        "a mutation the tracer refuses",
        _is_mutation,
        lambda b: b.explanation.splitlines()[0] if b.explanation else b.reason,
        _advise("make this change before the call"),
    ),
)


def rule_of(found: GraphBreak) -> BreakRule | None:
    return next((rule for rule in RULES if rule.applies(found)), None)


def find(found: Iterable[GraphBreak], compiles: Iterable[Compile]) -> tuple[Finding, ...]:
    """Give one finding per rule and line, with what it cost."""
    merged: dict[tuple[str, str, int], Finding] = {}
    bill = _Bill(tuple(compiles))
    for each in found:
        rule = rule_of(each)
        if rule is None:
            continue
        new = Finding(
            rule.id,
            rule.happened(each),
            each.location,
            bill.seconds(each),
            _evidence(each),
            rule.advice(each),
            each.count,
        )
        key = (rule.id, each.location.own.file, each.location.own.line)
        merged[key] = _join(merged[key], new) if key in merged else new
    return tuple(merged.values())


class _Bill:
    """Charges every second of compilation to one break at most.

    A break costs the attempt that it threw away and the compilation of what comes after it; one that cannot be resumed costs
    the whole compilation. Recompiles have a guard to answer for them.
    """

    def __init__(self, compiles: tuple[Compile, ...]) -> None:
        self._first = [compile for compile in compiles if not compile.is_recompile]
        self._charged: set[tuple[int, str]] = set()
        self._attempts: set[tuple[tuple[int, str], int]] = set()

    def seconds(self, found: GraphBreak) -> float:
        total = 0.0
        for compile in self._first:
            if compile.key in self._charged:
                continue
            if _made_by(compile, found):
                self._charged.add(compile.key)
                total += compile.seconds - sum(
                    attempt.seconds for attempt in compile.attempts if (compile.key, attempt.index) in self._attempts
                )
            elif compile.key in found.compiles and compile.resumes is None:
                total += self._thrown_away(compile, found)
        return total

    def _thrown_away(self, compile: Compile, found: GraphBreak) -> float:
        for attempt in compile.attempts:
            key = (compile.key, attempt.index)
            if attempt.outcome == "restarted" and attempt.reason == found.reason and key not in self._attempts:
                self._attempts.add(key)
                return attempt.seconds
        return 0.0


def _made_by(compile: Compile, found: GraphBreak) -> bool:
    if compile.resumes is None:
        return not found.resumable and compile.outcome in ("skipped", "failed") and compile.key in found.compiles
    return any(line.file == compile.location.file and line.line == compile.resumes for line in found.chain)


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


def _evidence(found: GraphBreak) -> tuple[str, ...]:
    fatal = "the compilation failed: fullgraph=True allows no break" if found.fatal else ""
    lines = [fatal, found.reason, found.explanation, *(f"torch suggests: {hint}" for hint in found.hints)]
    if len(found.chain) > 1:
        lines.append("reached through " + " > ".join(map(str, found.chain)))
    return tuple(line for line in lines if line)
