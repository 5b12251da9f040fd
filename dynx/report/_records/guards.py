"""Show the results of `dynx.guards` as blocks (title, table, notes): cache entries, predicted recompiles, costs of guards."""

from __future__ import annotations

from collections.abc import Iterator

from dynx.advice import spoken
from dynx.records import CacheReport, CostNode, Entry, GuardCosts, GuardInfo, Verdict
from dynx.report import _words as words
from dynx.report._records.block import Block
from dynx.report._wrap import unbroken


def of_cache(report: CacheReport) -> Iterator[Block]:
    versions = words.plural(len(report.entries), "version")
    yield Block(words.function(report.location), f"{versions} in torch's cache" if report.entries else "nothing compiled")
    for entry in report.entries:
        yield from of_entry(entry)


def of_entry(entry: Entry) -> Iterator[Block]:
    on_values = sorted((guard for guard in entry.guards if guard.is_on_value), key=lambda guard: guard.is_on_library)
    rows = [(spoken(guard.source), guard.expected or "", guard.kind, _asked(guard)) for guard in on_values]
    others = entry.size - len(on_values)
    notes = (f"and {others} on global state or on Dynamo's own attributes of tensors",) if others else ()
    yield Block(f"{entry.id}  {entry.backend}", _facts(entry), ("value", "expected", "guard", "asked for at"), rows, notes)


def _facts(entry: Entry) -> str:
    parts = [f"resume function after line {entry.resumes}"] if entry.resumes is not None else []
    parts.append(words.plural(entry.size, "guard"))
    parts += ["pinned"] if entry.is_pinned else []
    parts += [words.seconds(entry.seconds)] if entry.seconds is not None else []
    parts += [words.plural(entry.hits, "call")] if entry.hits is not None else []
    parts += [f"{name}={value}" for name, value in entry.config.items() if value not in ("None", "False") and "." not in name]
    return "  ".join(parts)


def _asked(guard: GuardInfo) -> str:
    if guard.location is None:
        return ""
    more = len(guard.requesters) - 1
    remark = unbroken(f"and {words.plural(more, 'line')} more")
    return words.own_and_library(guard.location) + (f" {remark}" if more > 0 else "")


_OUTCOMES = {
    "hit": "hits a cache entry",
    "compile": "would compile for the first time",
    "recompile": "would recompile",
    "eager": "runs eagerly",
    "unknown": "cannot be predicted before the call",
}


def of_verdict(verdict: Verdict) -> Iterator[Block]:
    rows = [
        (
            reason.against or "",
            reason.subject.replace(reason.source, spoken(reason.source)),
            reason.expected if reason.expected is not None else "?",
            reason.got if reason.got is not None else "?",
            words.own_and_library(reason.location),
            reason.rule or "",
        )
        for reason in verdict.reasons
    ]
    remark = ": ".join(part for part in (verdict.entry, verdict.why) if part)
    notes = tuple(f"decided only during the call: {unknown}" for unknown in verdict.unknown)
    columns = ("version", "value", "expected", "got", "asked for at", "rule")
    yield Block(f"{words.function(verdict.location)} {_OUTCOMES[verdict.outcome]}", remark, columns, rows, notes)


def of_costs(costs: GuardCosts) -> Iterator[Block]:
    share = f"{costs.share:.0%}" if costs.share >= 0.005 else "less than 1 %"
    title = f"guards take {_us(costs.ns)} of a call of {_us(costs.call_ns)} ({share})"
    rows = [(_us(setting.ns), str(setting.guards), setting.name, "; ".join(setting.misses)) for setting in costs.settings]
    amounts = [setting.ns for setting in costs.settings]
    columns = ("#time", "#guards", "setting", "would miss")
    yield Block(title, words.function(costs.location), columns, rows, (_advice(costs),), amounts)
    for frame in costs.frames:
        nodes = sorted((node for _, node in frame.tree.walk()), key=lambda node: node.own_ns, reverse=True)
        guarded = [node for node in nodes if node.guards]
        part = [
            (_us(node.own_ns), f"{node.own_ns / max(frame.tree.ns, 1e-9):.0%}", str(len(node.guards)), _named(node))
            for node in guarded
        ]
        amounts = [node.own_ns for node in guarded]
        where = f"resume function after line {frame.resumes}" if frame.resumes is not None else "the function"
        times = f", {frame.times} times a call" if frame.times > 1 else ""
        remark = f"{where}{times}: {words.plural(frame.size, 'guard')} in {_us(frame.ns)}"
        yield Block(f"{frame.id}  most expensive values", remark, ("#time", "#part", "#guards", "value"), part, (), amounts)


def _advice(costs: GuardCosts) -> str:
    if costs.advice == costs.settings[0]:
        return "no cheaper setting is safe in every case"
    return f"advice: {costs.advice.how}"


def _named(node: CostNode) -> str:
    if node.source not in ("", "L"):
        return spoken(node.source)
    others = dict.fromkeys(spoken(guard.source) for guard in node.guards if guard.kind != "global_state")
    return ", ".join(["global state", *filter(None, others)])


def _us(ns: float) -> str:
    return f"{ns / 1000:.2f} us" if ns < 1e5 else f"{ns / 1000:,.0f} us"
