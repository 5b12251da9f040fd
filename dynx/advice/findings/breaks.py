"""Find graph breaks to which an advice rule applies, and the compile time that they cost."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from dynx.advice.facts import libraries
from dynx.advice.facts.breaks import unbuildable
from dynx.advice.facts.names import is_array
from dynx.advice.findings.cached import constant_result
from dynx.advice.findings.roots import OfBreaks
from dynx.advice.proof.what_ifs import of_breaks, with_what_ifs
from dynx.advice.rule import BreakRule, Cause, PlaceRule, is_caused_by
from dynx.advice.rules import advice_of, rule_by_reason, rule_of_break
from dynx.records.compile import Compile
from dynx.records.finding import Alternative, Finding
from dynx.records.graph_break import GraphBreak
from dynx.records.recompile import Recompile
from dynx.records.run_records import RunRecords


def find(run: RunRecords, inside: Iterable[Cause]) -> tuple[OfBreaks, ...]:
    """Return the findings for graph breaks: one for each rule and source line, with the compile time that the breaks cost.

    `inside` are causes of recompiles in libraries; each is added to the finding of the graph break that led to it.
    """
    breaks = run.graph_breaks
    merged: dict[BreakKey, Finding] = {}
    merged_breaks: dict[BreakKey, list[GraphBreak]] = {}
    consequences: list[tuple[BreakKey, GraphBreak]] = []
    costs = _Costs(run.compiles)
    for graph_break in breaks:
        rule = rule_of_break(graph_break)
        if rule is None or (isinstance(rule, BreakRule) and rule.is_expected):
            continue
        if rule.is_consequence and (earlier := _cause_of(graph_break, breaks)) is not None:
            consequences.append((earlier, graph_break))
            continue
        if isinstance(rule, BreakRule) and rule.is_fallback and (other := _explained_at(graph_break, breaks)) is not None:
            consequences.append((other, graph_break))
            continue
        if isinstance(rule, BreakRule) and (other := _in_block(graph_break, rule, breaks)) is not None:
            consequences.append((other, graph_break))
            merged_breaks.setdefault(other, []).append(graph_break)  # it splits off functions too
            continue
        title, advice = rule.title_of(graph_break), advice_of(rule, graph_break)
        if (constant := constant_result(graph_break, run.warnings)) is not None:
            advice = advice.with_first(constant)
        if graph_break.fatal:
            title = f"fullgraph=True fails: {title}"
            advice = advice.with_last("drop fullgraph=True, which allows a graph break here")
        finding = Finding(
            rule.id,
            title,
            graph_break.location,
            costs.seconds(graph_break),
            _evidence(graph_break),
            "",
            graph_break.count,
            fixes=tuple(reason.fixes(graph_break)) if (reason := rule_by_reason(graph_break)) is not None else (),
        ).advised(advice.alternatives)
        key = _key(rule, graph_break)
        merged[key] = _join(merged[key], finding) if key in merged else finding
        merged_breaks.setdefault(key, []).append(graph_break)
    for key, graph_break in consequences:
        merged[key] = _with_consequence(merged[key], graph_break, costs)
    recompiles: dict[BreakKey, list[Recompile]] = {}
    for cause in inside:
        if (around := break_around(cause, breaks)) is not None and (rule := rule_of_break(around)) is not None:
            recompiles.setdefault(_key(rule, around), []).extend(cause.recompiles)
    for key, found in recompiles.items():
        merged[key] = _with_recompiles(merged[key], found)
    advised = {key: _without_capture(finding, merged.values()) for key, finding in merged.items()}
    return tuple(
        OfBreaks(_with_what_ifs(finding, merged_breaks[key], run), merged_breaks[key]) for key, finding in advised.items()
    )


def _with_what_ifs(finding: Finding, own: Sequence[GraphBreak], run: RunRecords) -> Finding:
    """Return a finding with the fixes that were tried on the calls whose traces its graph breaks ended, and their results."""
    causes = [graph_break.cause for graph_break in own]
    tried = [what_if for what_if in run.what_ifs if what_if.graph_break in causes]
    what_ifs = of_breaks(tried, finding.fixes, {graph_break.cause for graph_break in run.graph_breaks})
    return replace(finding, what_ifs=what_ifs).advised(with_what_ifs(finding.alternatives, what_ifs))


def _without_capture(finding: Finding, others: Iterable[Finding]) -> Finding:
    """Replace the advice of a DX209 finding if its function also has a DX202 finding; return any other finding unchanged.

    DX209 (an output size depends on the data) advises a setting. With this setting, the line of DX202 (a tensor is converted to
    a Python number) raises GuardOnDataDependentSymNode instead of breaking the graph.
    """
    own = finding.location.own
    reads = (each for each in others if each.rule == "DX202" and each.location.own.file == own.file)
    if finding.rule != "DX209" or all(each.location.own.function != own.function for each in reads):
        return finding
    return finding.advised(
        [Alternative("do this outside the compiled function, with the line of DX202, which reads the values")]
    )


def inside_libraries(causes: Sequence[Cause], breaks: Sequence[GraphBreak]) -> list[Cause]:
    """Return the causes that are reported with a graph break in a library (see `break_around`), not as findings of their own.

    Causes for which dynx has advice to users of the library are omitted. Changing sizes come from the program: they are
    returned only if a changing size is also reported for a function that the user's code calls.
    """
    of_sizes = {id(cause) for cause in causes if cause.rule.is_size and not is_array(cause.first.source)}
    called = (cause for cause in causes if id(cause) in of_sizes)
    is_reported = any(cause.called_from is None or cause.called_from.library is None for cause in called)
    kept = {id(cause) for cause in causes if libraries.advice_on_value(cause.first)} | (set() if is_reported else of_sizes)
    return [cause for cause in causes if id(cause) not in kept and break_around(cause, breaks)]


def break_around(cause: Cause, breaks: Iterable[GraphBreak]) -> GraphBreak | None:
    """Return the graph break that makes torch compile the library function of `cause` on its own; None if there is none.

    The values that recompile such a function come from the library, so the user can only remove the graph break.
    """
    call, location = cause.called_from, cause.recompiles[0].location
    if call is None or call.library is None or call.library != location.library:
        return None
    line = call.library, location.own.file, location.own.line
    return next(
        (each for each in breaks if line == (each.location.library, each.location.own.file, each.location.own.line)), None
    )


def _with_recompiles(finding: Finding, recompiles: list[Recompile]) -> Finding:
    plural = "s" if len(recompiles) > 1 else ""
    library = recompiles[0].location.library
    evidence = (f"{each.id}: {each.location.function}: {each.reasons[0].text}" for each in recompiles)
    return replace(
        finding,
        title=f"{finding.title}; {len(recompiles)} recompile{plural} inside {library}",
        seconds=finding.seconds + sum(each.seconds for each in recompiles),
        evidence=(*finding.evidence, *evidence),
    )


def _cause_of(graph_break: GraphBreak, breaks: Iterable[GraphBreak]) -> BreakKey | None:
    """Return the key of the graph break that caused `graph_break` in the same compilation; None if there is none."""
    for earlier in breaks:
        rule = rule_of_break(earlier)
        if rule is not None and not rule.is_consequence and set(earlier.compiles) & set(graph_break.compiles):
            return _key(rule, earlier)
    return None


def _with_consequence(finding: Finding, graph_break: GraphBreak, costs: _Costs) -> Finding:
    eager = costs.left_eager(graph_break)
    ends = f"; {eager} runs eagerly: Dynamo cannot rebuild {unbuildable(graph_break)} outside the graph" if eager else ""
    return replace(
        finding,
        title=f"{finding.title}{ends}",
        seconds=finding.seconds + costs.seconds(graph_break),
        evidence=(*finding.evidence, *_evidence(graph_break)),
    )


class BreakKey(NamedTuple):
    """Key by which findings of graph breaks are merged: rule, line of user code and, in a library, also the library's line."""

    rule: str
    file: str
    line: int
    in_library: str


def _explained_at(graph_break: GraphBreak, breaks: Iterable[GraphBreak]) -> BreakKey | None:
    """Return the key of another graph break at the same line, which a rule of its own explains; None if there is none."""
    line = graph_break.location.own.file, graph_break.location.own.line
    for other in breaks:
        rule = rule_of_break(other) if (other.location.own.file, other.location.own.line) == line else None
        if rule is None or rule.is_consequence or (isinstance(rule, BreakRule) and (rule.is_fallback or rule.is_expected)):
            continue
        return _key(rule, other)
    return None


def _in_block(graph_break: GraphBreak, rule: BreakRule, breaks: Iterable[GraphBreak]) -> BreakKey | None:
    """Return the key of a break for the same reason at the same line, in a caller that cannot resume; None if there is none.

    Torch then compiles the called function on its own, and its graph breaks there again.
    """
    line = graph_break.location.file, graph_break.location.line
    for other in breaks:
        around = rule_of_break(other) if (other.location.file, other.location.line) == line else None
        if isinstance(around, PlaceRule) and around.is_call and rule_by_reason(other) is rule:
            return _key(around, other)
    return None


def _key(rule: BreakRule | PlaceRule, graph_break: GraphBreak) -> BreakKey:
    location = graph_break.location
    name = "call" if rule.is_call else rule.id  # tqdm() in a `for`, open() in a `with`: two breaks for one call
    where = f"{location.file}:{location.line}" if location.library is not None else ""
    return BreakKey(name, location.own.file, location.own.line, where)


class _Costs:
    """The compile time that each graph break costs; each second is counted for at most one graph break.

    The cost of a graph break is the tracing attempt that it discarded, plus the compilation of its resume function. If torch
    cannot resume after it, the cost is the whole compilation. Recompiles are not included: their cause is a failed guard.
    """

    def __init__(self, compiles: Iterable[Compile]) -> None:
        self._first = [compile for compile in compiles if not compile.is_recompile]
        self._counted: set[tuple[int, str]] = set()  # keys of compilations
        self._attempts: set[tuple[tuple[int, str], int]] = set()  # key of the compilation, and index of the attempt in it

    def seconds(self, graph_break: GraphBreak) -> float:
        total = 0.0
        for compile in self._first:
            if compile.key in self._counted:
                continue
            if is_caused_by(compile, graph_break):
                self._counted.add(compile.key)
                counted = (each.seconds for each in compile.attempts if (compile.key, each.index) in self._attempts)
                total += compile.seconds - sum(counted)
            elif compile.key in graph_break.compiles and compile.resumes is None:
                total += self._discarded(compile, graph_break)
        return total

    def left_eager(self, graph_break: GraphBreak) -> str | None:
        """Return the name of the function that runs eagerly because torch cannot resume after a graph break."""
        compiles = (compile for compile in self._first if is_caused_by(compile, graph_break))
        return next((compile.location.own.function for compile in compiles if compile.outcome == "skipped"), None)

    def _discarded(self, compile: Compile, graph_break: GraphBreak) -> float:
        for attempt in compile.attempts:
            key = compile.key, attempt.index
            if attempt.outcome == "restarted" and attempt.reason == graph_break.reason and key not in self._attempts:
                self._attempts.add(key)
                return attempt.seconds
        return 0.0


def _join(first: Finding, second: Finding) -> Finding:
    return replace(
        first,
        seconds=first.seconds + second.seconds,
        evidence=first.evidence + second.evidence,
        count=first.count + second.count,
    )


def _evidence(graph_break: GraphBreak) -> tuple[str, ...]:
    lines = [graph_break.reason, graph_break.explanation, *(f"torch suggests: {hint}" for hint in graph_break.hints)]
    if graph_break.fatal:
        lines.insert(0, "the compilation failed: fullgraph=True (or error_on_graph_break) allows no graph break")
    if len(graph_break.chain) > 1:
        lines.append("reached through " + " > ".join(map(str, graph_break.chain)))
    if graph_break.page:
        lines.append(f"torch's page: {graph_break.page}")
    return tuple(line for line in lines if line)
