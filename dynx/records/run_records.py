"""`RunRecords`: all kinds of records of a run, such as `run.graph_breaks`, declared in the order of `Run.to_json`."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dynx.records import merge
from dynx.records.backward import BackwardCapture
from dynx.records.backward import latest as latest_captures
from dynx.records.cache_key import CacheKey, KeySettings
from dynx.records.compile import Backward, Compile, CompileUse, GaveUp, Skipped
from dynx.records.comptime import BreakState, LineCost, Logged, TracedCompile
from dynx.records.cudagraphs import AddressChange, GraphRecorded, Skip
from dynx.records.detail import CompiledGuards, GraphCode, code_cells, code_lines, guard_cells, guard_lines
from dynx.records.eager_time import EagerTime
from dynx.records.effects import FrameEffects
from dynx.records.finding import Finding
from dynx.records.graph_break import GraphBreak
from dynx.records.isa_check import IsaCheck
from dynx.records.kind import Kind
from dynx.records.observed import BecameDynamic, CacheEvent, ProfileMiss, Specialized, TorchWarning, Trouble
from dynx.records.recompile import Recompile
from dynx.records.record import Record
from dynx.records.saved import SavedGraph
from dynx.records.table import Bytes, Cell, Change, Function, Line, Seconds, Strong, Table, Times, Value
from dynx.records.trial import Trial
from dynx.records.unguarded import StaleValue, Unguarded
from dynx.records.what_if import WhatIf, latest

_YES_NO = {True: "yes", False: "no", None: ""}
_CUDA_GRAPHS = "CUDA graphs: not captured, and recorded"


def _outcome(compile: Compile) -> str:
    if compile.outcome == "compiled":
        return "compiled"
    return f"{compile.outcome.replace('_', ' ')}: {compile.reason or 'torch gives no reason'}"


def _recompile_rows(recompile: Recompile) -> Iterable[tuple[Cell, ...]]:
    reason = recompile.reasons[0] if recompile.reasons else None
    guard = (reason.source, Change(reason.expected, reason.got), reason.location) if reason is not None else ("", "", "")
    yield recompile.id, recompile.location.function, *guard, Seconds(recompile.seconds)


def _effect_rows(frame: FrameEffects) -> Iterable[tuple[Cell, ...]]:
    for effect in frame.effects:
        values = Value(effect.source), Change(effect.before, effect.after), "no" if effect.is_lost else "yes"
        yield frame.id, frame.location.function, *values, effect.location


def _recompile_lines(recompile: Recompile) -> Iterable[Line]:
    reason = recompile.reasons[0] if recompile.reasons else None
    fact = (Strong(recompile.id), recompile.location.function, reason or "torch gives no reason")
    yield Line(Seconds(recompile.seconds), fact, reason.location if reason is not None else None)


def _break_lines(graph_break: GraphBreak) -> Iterable[Line]:
    callee = f" ({graph_break.callee})" if graph_break.callee else ""
    then = "; the whole function runs eagerly"
    if graph_break.fatal:
        then = "; the compilation failed: no graph break was allowed"
    elif graph_break.resumable:
        then = ""
    lines = [f"{graph_break.reason}{callee}{then}", graph_break.code, graph_break.explanation]
    lines += [f"torch suggests: {hint}" for hint in graph_break.hints[:2]]
    lines += [f"torch's page: {graph_break.page}"] if graph_break.page else []
    yield Line(Times(graph_break.count), ("\n".join(line for line in lines if line),), graph_break.location)


def _values_of(dynamic: BecameDynamic) -> Cell:
    if dynamic.profile is None:
        return Change(dynamic.first, dynamic.second)
    return str(dynamic).partition(": ")[2]


class RunRecords:
    """The base class of `Run` and `Watch`: one attribute for each kind of record, and totals such as `compile_seconds`.

    To add a kind of record to run files, `to_json`, terminal and notebook, declare a `Kind` in this class.
    """

    if TYPE_CHECKING:  # fields of `Run`, properties of `Watch`

        @property
        def events(self) -> tuple[Record, ...]:
            """All records of the run in the order in which they were emitted."""
            raise NotImplementedError

        @property
        def findings(self) -> tuple[Finding, ...]: ...
        @property
        def header(self) -> Mapping[str, Any]: ...
        @property
        def end(self) -> Mapping[str, Any]: ...
        @property
        def problems(self) -> tuple[str, ...]: ...
        @property
        def unknown(self) -> Sequence[Mapping[str, Any]]: ...

    compiles = Kind(
        Compile,
        "compile",
        "Every compilation that ended, also one that led to no compiled code.",
        table=Table(
            "Compiles",
            ("id", "function", "outcome", "attempts", "nodes", "guards", "seconds"),
            lambda r: [(r.id, Function(r.location), _outcome(r), len(r.attempts), r.nodes, r.guards, Seconds(r.seconds))],
            order=50,
        ),
    )
    backwards = Kind(Backward, "backward", "Backward graphs that were compiled later than their forward.")
    recompiles = Kind(
        Recompile,
        "recompile",
        "Every recompile, each reason with the rule that applies.",
        table=Table(
            "Recompiles",
            ("id", "function", "guard", "first, then", "asked for at", "seconds"),
            _recompile_rows,
            _recompile_lines,
            brief="Recompiles without advice",
            is_brief=lambda r: not r.reasons or r.reasons[0].rule is None,
            order=10,
        ),
    )
    graph_breaks = Kind(
        GraphBreak,
        "graph_break",
        "Every cause of a graph break once, with its count and the rule that applies.",
        merge=merge.graph_breaks,
        table=Table(
            "Graph breaks",
            ("where", "why", "called", "resumed", "count"),
            lambda r: [(r.location, r.reason, r.callee or "", "yes" if r.resumable else "no", Times(r.count))],
            _break_lines,
            brief="Graph breaks without advice",
            is_brief=lambda r: r.rule is None and not r.fatal,  # a fatal one has a finding
            order=20,
        ),
    )
    gave_up = Kind(
        GaveUp,
        "gave_up",
        "Functions that reached a recompile limit, each once: further calls run eagerly, or raise under `fullgraph=True`.",
        merge=merge.gave_up,
        table=Table(
            "Gave up, runs eagerly",
            lines=lambda r: [Line(r.id, (f"{r.location.function} reached {r.limit} = {r.allowed}",), r.location)],
            order=30,
        ),
    )
    skipped = Kind(
        Skipped,
        "skipped",
        "Functions that Dynamo skips silently: they run eagerly.",
        merge=merge.counted("location", "reason"),
        table=Table(
            "Skipped by Dynamo, runs eagerly",
            ("where", "why", "count"),
            lambda r: [(r.location, r.reason, Times(r.count))],
            heading="Skipped by Dynamo",
            order=80,
        ),
    )
    uses = Kind(CompileUse, "compile_use", "How torch.compile was used, if nothing was compiled.")
    caches = Kind(
        CacheEvent,
        "cache",
        "Hits, misses and bypasses of the compile caches on disk.",
        merge=merge.counted("cache", "result", "generation", "id", "reason"),
        table=Table(
            "Compile caches",
            ("id", "cache", "result", "reason", "count"),
            lambda r: [(r.id, r.cache, r.result, r.reason or "", Times(r.count))],
            lambda r: [Line(Times(r.count), (f"{r.cache} cache {r.result}" + (f": {r.reason}" if r.reason else ""),))],
            order=60,
        ),
    )
    cudagraph_skips = Kind(
        Skip,
        "cudagraph_skip",
        "What `dynx.cudagraphs`, and torch under `reduce-overhead`, run uncaptured, and why.",
        merge=merge.counted("reason", "location"),
        table=Table(
            _CUDA_GRAPHS,
            ("what", "seconds", "where", "count"),
            lambda r: [(r.reason, "", r.location, Times(r.count))],
            heading="CUDA graphs",
            order=70,
        ),
    )
    cudagraphs = Kind(
        GraphRecorded,
        "cudagraph_recorded",
        "What `dynx.cudagraphs` captured.",
        table=Table(
            _CUDA_GRAPHS,
            ("what", "seconds", "where", "count"),
            lambda r: [(str(r), Seconds(r.seconds), None, Times(1))],
            heading="CUDA graphs",
            order=70,
        ),
    )
    address_changes = Kind(AddressChange, "address_change", "Static inputs of `dynx.cudagraphs` that have a new address.")
    dynamic = Kind(
        BecameDynamic,
        "became_dynamic",
        "Sizes, strides and numbers that torch made symbolic.",
        table=Table(
            "Became dynamic",
            ("id", "what", "first, then", "first used at"),
            lambda r: [(r.id, f"{r.source} {r.dim}", _values_of(r), r.location)],
            lambda r: [Line(r.id, (str(r),), r.location)],
            order=40,
        ),
    )
    specialized = Kind(
        Specialized,
        "specialized",
        "Symbolic sizes and numbers that a line of code fixed to one value.",
        table=Table(
            "Fixed to one value",
            ("id", "what", "code", "by"),
            lambda r: [(r.id, Value(r.source), r.code, r.location)],
            lambda r: [Line(r.id, (Value(r.source), r.code), r.location)],
            order=45,
        ),
    )
    saved = Kind(
        SavedGraph,
        "saved_graph",
        'What graphs save for backward: those under `dynx.saved.hooks`; with `watch(detail="full")` all.',
        table=Table(
            "Saved for backward",
            ("id", "function", "tensors", "bytes", "stored in"),
            lambda r: [(r.id, r.location and Function(r.location), len(r.activations), Bytes(r.bytes), Bytes(r.saved_bytes))],
            order=75,
        ),
    )
    side_effects = Kind(
        FrameEffects,
        "side_effects",
        "What each compiled graph mutates, and whether the compiled code repeats it.",
        table=Table("Side effects", ("id", "function", "what", "before, then", "repeated", "where"), _effect_rows, order=77),
    )
    unguarded = Kind(Unguarded, "unguarded", "What compiled code read while it was traced, and that no guard watches.")
    stale_values = Kind(
        StaleValue,
        "stale_value",
        "Values that changed while compiled code kept the old ones.",
        table=Table(
            "Stale values",
            ("id", "value", "compiled with, now", "calls", "read at"),
            lambda r: [(r.id, Value(r.text), f"{r.before}, now {r.now}", Times(r.calls), r.read_at)],
            lambda r: [Line(r.id, (Value(r.text), f"{r.before}, now {r.now}", Times(r.calls)), r.read_at)],
            order=20,
        ),
    )
    profile_misses = Kind(ProfileMiss, "profile_miss", "Functions that a PGO profile has only with another closure.")
    warnings = Kind(
        TorchWarning,
        "warning",
        "What torch warned of while it compiled.",
        merge=merge.counted("text", "origin"),
        table=Table(
            "Warnings of torch",
            ("what", "where", "count"),
            lambda r: [(r.text, r.location, Times(r.count))],
            lambda r: [Line(Times(r.count), (r.text.strip(),), r.location)],
            order=90,
        ),
    )
    logs = Kind(Logged, "logged", "What callbacks of `dynx.comptime` logged at compile time, once for all attempts at a line.")
    post_mortem = Kind(
        BreakState,
        "break_state",
        'The state of the trace at each cause of a break: with `watch(detail="full")` or `dynx.comptime.post_mortem`.',
        merge=merge.break_states,
    )
    traced = Kind(TracedCompile, "traced_compile", 'What tracing each compilation cost: with `watch(detail="full")`.')
    timeline = Kind(
        LineCost,
        "line_cost",
        'What each line cost while it was traced, most expensive first: with `watch(detail="full")`.',
        merge=merge.lines,
    )
    guards = Kind(
        CompiledGuards,
        "compiled_guards",
        'The guards of each compilation: with `watch(detail="full")`.',
        table=Table("Guards", ("id", "value", "expected", "guard", "asked for at"), guard_cells, guard_lines, order=100),
    )
    graph_code = Kind(
        GraphCode,
        "graph_code",
        'The graph of each compilation as code, with the user\'s lines: with `watch(detail="full")`.',
        table=Table("Graphs", ("id", "function", "code"), code_cells, code_lines, order=110),
    )
    cache_keys = Kind(CacheKey, "cache_key", 'The keys of graphs in the caches on disk: with `watch(detail="full")`.')
    cache_settings = Kind(KeySettings, "key_settings", 'torch\'s configuration in `cache_keys`: with `watch(detail="full")`.')
    eager_times = Kind(
        EagerTime,
        "eager_time",
        "How long functions ran uncompiled after torch gave them up, by samples.",
        table=Table(
            "Ran uncompiled",
            ("function", "seconds", "of the time", "samples"),
            lambda r: [(Function(r.location), Seconds(r.seconds), f"{r.share:.0%}", str(r.samples))],
            lambda r: [
                Line(Seconds(r.seconds), (f"{r.location.function} ran uncompiled, {r.share:.0%} of the time",), r.location)
            ],
            is_brief=lambda r: False,  # beside the finding
            order=31,
        ),
    )
    isa_checks = Kind(
        IsaCheck,
        "isa_check",
        "inductor's tests of the CPU's vector instructions, which each process makes.",
        table=Table(
            "Tests of CPU instructions",
            ("instructions", "seconds", "result"),
            lambda r: [(r.instructions, Seconds(r.seconds), "usable" if r.passed else "not usable")],
            lambda r: [Line(Seconds(r.seconds), (r.instructions, "usable" if r.passed else "not usable"), None)],
            is_brief=lambda r: False,  # their sum is below the summary
            order=120,
        ),
    )
    backward_captures = Kind(
        BackwardCapture,
        "backward_capture",
        "Backward passes that compiled autograd captured, and why: only with `torch._dynamo.config.compiled_autograd`.",
        merge=latest_captures,
        table=Table(
            "Captures of compiled autograd",
            ("id", "why", "nodes", "hooks", "calls", "backward() at", "seconds"),
            lambda r: [(r.id, str(r.reason), len(r.nodes), len(r.hooks), r.calls, r.location, Seconds(r.seconds))],
            lambda r: [Line(Seconds(r.seconds), (Strong(r.id), str(r.reason), Times(r.calls)), r.location)],
            order=25,
        ),
    )
    what_ifs = Kind(
        WhatIf,
        "what_if",
        "Fixes that were tried on calls of functions while the program ran: with `dynx run`, or `watch(what_if=True)`.",
        merge=latest,
        table=Table(
            "What fixes would change",
            ("rule", "fix", "function", "result", "seconds"),
            lambda r: [(r.rule, r.code, Function(r.location), r.result, Seconds(r.seconds))],
            lambda r: [Line(r.rule, (f"{r.code}: {r.result}",), r.location)],
            order=6,
        ),
    )
    trials = Kind(
        Trial,
        "trial",
        "Fixes that were tried in further runs of the program: with `dynx run --try`.",
        table=Table(
            "Tried in further runs",
            ("finding", "fix", "outcome", "before", "after", "same output"),
            lambda r: [(r.rule, r.fix.code, r.outcome, str(r.before), str(r.after or ""), _YES_NO[r.same_output])],
            lambda r: [Line(r.rule, (f"{r.fix.code}: {r.result}",), r.location)],
            order=5,
        ),
    )
    troubles = Kind(
        Trouble,
        "trouble",
        "What dynx itself could not do.",
        merge=merge.counted("what", "why"),
        table=Table(
            "not recorded by dynx",
            ("what", "why", "count"),
            lambda r: [(r.what, r.why, Times(r.count))],
            lambda r: [Line(Times(r.count), (f"{r.what}: {r.why}",))],
            brief="not recorded by dynx",
            style="yellow",
            order=900,
        ),
    )

    @property
    def eager(self) -> tuple[Compile, ...]:
        """Compilations that Dynamo abandoned at a graph break after which it cannot resume: the whole function runs eagerly."""
        breaks = (event for event in self.events if isinstance(event, GraphBreak))  # one cause may be resumable elsewhere
        broken = {key for graph_break in breaks if not graph_break.resumable for key in graph_break.compiles}
        return tuple(compile for compile in self.compiles if compile.outcome == "skipped" and compile.key in broken)

    @property
    def ended(self) -> tuple[Compile, ...]:
        """Compilations of a function with compiled code that Dynamo abandoned because the call has no tensor operation.

        From then on torch runs the function eagerly in each call. Before torch 2.13 it gives no reason. Functions that a
        library calls, and the parts of a function after a graph break, are left out: without the graph break they are inside
        another graph.
        """
        broken = {key for event in self.events if isinstance(event, GraphBreak) for key in event.compiles}
        skipped = (compile for compile in self.compiles if compile.outcome == "skipped" and compile.is_recompile)
        whole = (each for each in skipped if each.resumes is None)
        own = (each for each in whole if each.called_from is None or each.called_from.library is None)
        return tuple(
            compile
            for compile in own
            if compile.key not in broken and (compile.has_no_operation or "gives no reason" in (compile.reason or ""))
        )

    @property
    def seconds(self) -> float:
        """Wall time of the whole run in seconds; 0.0 while the run goes on, or if its process was killed before the end."""
        seconds = self.end.get("seconds", 0.0)
        return seconds if isinstance(seconds, float) and math.isfinite(seconds) else 0.0

    @property
    def compile_seconds(self) -> float:
        """Wall time spent compiling, backward graphs included, in seconds."""
        return sum(compile.seconds for compile in self.compiles) + sum(backward.seconds for backward in self.backwards)

    @property
    def is_complete(self) -> bool:
        """Whether the end of the run was recorded; False while the run goes on, and if its process was killed."""
        return bool(self.end)
