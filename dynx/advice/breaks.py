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
    kind = graph_break.kind.lower()
    return kind.startswith(("data-dependent", "data dependent")) or "data-dependent expression" in kind


def _is_generator_object(graph_break: GraphBreak) -> bool:
    if graph_break.kind == "Unsupported method call":
        return bool(re.search(r"of class `(?:Generator|RandomState)`", graph_break.explanation))
    return graph_break.kind == "Failed to convert args/kwargs to proxy" and "generator" in graph_break.code


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


def _code(graph_break: GraphBreak) -> str:
    return f": {graph_break.code}" if graph_break.code else ""


def _name(graph_break: GraphBreak) -> str:
    if graph_break.kind.startswith("logging.Logger"):
        return "a log call"
    return f"{graph_break.callee}()" if graph_break.callee else graph_break.reason


def _advise(text: str) -> Callable[[GraphBreak], str]:
    return lambda graph_break: text.format(name=_name(graph_break), library=graph_break.location.library)


_BUILTINS = {
    "time.sleep": "drop it, or wait outside the compiled function",
    "time.": "read the clock outside the compiled function, before and after the call",
    "random.": "draw it outside the compiled function and pass it in as a tensor; or use torch.rand",
    "open": "read the file outside the compiled function and pass the data in",
}


def _builtin_advice(graph_break: GraphBreak) -> str:
    callee = (graph_break.callee or "").removeprefix("builtins.").removeprefix("_io.")
    special = next((advice for prefix, advice in _BUILTINS.items() if callee.startswith(prefix)), None)
    return special or "call it outside, or wrap it as a torch.library.custom_op"


# code that stores a number in a Python object: `losses.append(...)`, `meter.update(...)`, `self.loss = ...`
_STORES = re.compile(
    r"\.(?:append|add|update|extend|insert|log|add_scalar|put|observe|setdefault)\(|^[\w.]+(?:\.\w+|\[[^]]*\])\s*[-+*/]?=(?!=)"
)


def _item_advice(graph_break: GraphBreak) -> str:
    if _STORES.search(graph_break.code):  # the number would be guarded, so that each new one recompiles
        return "store the detached tensor, or return it, and read its value outside the compiled function"
    if re.match(r"(?:el)?if\b|while\b|assert\b", graph_break.code):  # a captured number would break the graph at the branch
        return _branch_advice(graph_break)
    return "keep it a tensor; or config.capture_scalar_outputs = True"


_REACTS = re.compile(r":\s*(?:raise\b|assert\b|print\(|warnings?\.|log\w*\.|return\s*$|break\b|continue\b)")


def _branch_advice(graph_break: GraphBreak) -> str:
    if _REACTS.search(graph_break.code):  # the branch computes nothing that torch.where could select
        return "check the value outside the compiled function, after the call"
    return "use torch.where or torch.cond, or branch outside the compiled function"


def _context_advice(graph_break: GraphBreak) -> str:
    if re.search(r"`\w*[Ll]ock`", graph_break.explanation):
        return "take the lock around the call, outside the compiled function"
    return "enter it around the call, outside the compiled function"


def _size_advice(graph_break: GraphBreak) -> str:
    return "config.capture_dynamic_output_shape_ops = True, or mask with torch.where; or select outside the compiled function"


# what users of a library can change: library, part of the name of the file and function that breaks the graph, advice
_OF_LIBRARIES = (
    (
        "transformers",
        r"moe|mixtral|Experts",
        'load the model with experts_implementation="batched_mm", which reads no sizes from the data',
    ),
    (
        "transformers",
        r"wav2vec2|_mask_hidden_states|_compute_mask_indices",
        "turn the time masking off in the configuration (mask_time_prob=0), or mask outside",
    ),
    ("transformers", r"generation|generate", 'compile model.forward, not generate; or cache_implementation="static"'),
    ("transformers", r"cache_utils", "use a static cache (StaticCache), or use_cache=False where nothing is generated"),
)


def _library_advice(graph_break: GraphBreak) -> str:
    location = graph_break.location
    if _is_print(graph_break):
        return "change what it warns of; or add the logger's method to torch._dynamo.config.ignore_logging_functions"
    where = " ".join((location.file, location.function, *(f"{line.file} {line.function}" for line in graph_break.chain[-4:])))
    known = next((advice for name, part, advice in _OF_LIBRARIES if name == location.library and re.search(part, where)), None)
    if known is not None:
        return known
    rule = _rule_of_reason(graph_break)
    if rule is not None and rule.id in ("DX202", "DX203", "DX209"):
        return f"look for an option of {location.library} that avoids it, or compile only the part before and after this call"
    return f"call it outside the compiled function, or report it to {location.library}"


def _block_title(graph_break: GraphBreak) -> str:
    function = graph_break.chain[0].function if graph_break.chain else "the function"
    return f"{_name(graph_break)} inside a {graph_break.block}: {function} continues eagerly{_code(graph_break)}"


def _block_advice(graph_break: GraphBreak) -> str:
    rule = _rule_of_reason(graph_break)
    move = f"move it out of the {graph_break.block}, or out of the function"
    return f"{rule.advice(graph_break)}; or {move}" if rule is not None else move


def _rule_of_reason(graph_break: GraphBreak) -> BreakRule | None:
    """Return the first rule about why, not where, a graph breaks."""
    return next((rule for rule in RULES if rule.id not in _BY_LOCATION and rule.applies(graph_break)), None)


_BY_LOCATION = ("DX207", "DX501", "DX206")


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
        lambda b: f"{b.location.library} breaks the graph: {_name(b)}{_code(b)}",
        _library_advice,
    ),
    BreakRule(
        "DX210",
        "a context manager that Dynamo does not trace",
        lambda b: b.kind == "Unsupported context manager",
        lambda b: f"Dynamo does not trace this context manager{_code(b)}",
        _context_advice,
    ),
    BreakRule(
        "DX206",
        "a graph break where torch cannot resume",
        lambda b: b.block is not None and not (b.resumable or b.fatal or b.kind == "Observed exception"),
        _block_title,
        _block_advice,
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
        lambda b: f"reading a tensor's value breaks the graph{_code(b)}",
        _item_advice,
    ),
    BreakRule(
        "DX203",
        "Python branches on the value of a tensor",
        _is_data_dependent,
        lambda b: f"a Python branch depends on a tensor's value{_code(b)}",
        _branch_advice,
    ),
    BreakRule(
        "DX209",
        "an output size depends on the data",
        lambda b: b.kind.startswith("Dynamic shape operator") or "output shape depends on input Tensor data" in b.explanation,
        lambda b: f"the output size of {b.callee or 'the operator'} depends on the data{_code(b)}",
        _size_advice,
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
        lambda b: f"{_name(b)} is disabled or skipped: it is not traced{_code(b)}",
        _advise("call it outside the compiled function"),
    ),
    BreakRule(
        "DX211",
        "random numbers are drawn from a generator object",
        _is_generator_object,
        lambda b: f"Dynamo does not trace a generator object{_code(b)}",
        _advise("draw the random numbers outside the compiled function and pass them in as a tensor"),
    ),
    BreakRule(
        "DX212",
        "backward() runs inside the compiled function",
        lambda b: b.kind == "Unsupported Tensor.backward() call",
        lambda b: f"backward() runs inside the compiled function{_code(b)}",
        _advise("compile only the forward and the loss, and call backward() outside"),
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
        title, advice = rule.title_of(graph_break), rule.advice(graph_break)
        if graph_break.fatal:
            title, advice = (
                f"fullgraph=True fails: {title}",
                f"{advice}; or drop fullgraph=True, which allows a graph break here",
            )
        finding = Finding(
            rule.id,
            title,
            graph_break.location,
            costs.seconds(graph_break),
            _evidence(graph_break),
            advice,
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
