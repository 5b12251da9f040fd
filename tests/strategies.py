"""Hypothesis strategies for records."""

from __future__ import annotations

from hypothesis import strategies as st

from dynx.records import (
    AddressChange,
    Attempt,
    Backward,
    BackwardCapture,
    BackwardHook,
    BackwardNode,
    BecameDynamic,
    BreakState,
    CacheEvent,
    CacheKey,
    CodeLine,
    Compile,
    CompiledGuards,
    CompileUse,
    EagerTime,
    Effect,
    Events,
    Fix,
    FrameEffects,
    FrameState,
    GaveUp,
    GraphBreak,
    GraphCode,
    GraphRecorded,
    GuardInfo,
    IsaCheck,
    KeySettings,
    LineCost,
    Location,
    Logged,
    Mark,
    Mutation,
    OrderError,
    PeakTensor,
    ProfileMiss,
    Reason,
    RecaptureReason,
    Recompile,
    Repeated,
    SavedGraph,
    SavedTensor,
    Skip,
    Skipped,
    Specialized,
    StaleValue,
    TorchWarning,
    TracedCompile,
    TracedGuard,
    Trial,
    Trouble,
    Unguarded,
    UnguardedRead,
    WhatIf,
)

# printable text survives a file unchanged; the rest becomes visible escapes, see test_runfile.py
texts = st.text(st.characters(categories=("L", "N", "P", "S", "Zs")), max_size=20).filter(str.isprintable)
seconds = st.floats(0, 1e6)
counts = st.integers(0, 10**9)
ids = st.builds("{}/{}".format, st.integers(0, 99), st.integers(0, 99))


def locations(depth: int = 2) -> st.SearchStrategy[Location]:
    caller = st.none() | locations(depth - 1) if depth else st.none()
    return st.builds(
        Location, texts, counts, texts, st.none() | counts, st.none() | counts, library=st.none() | texts, caller=caller
    )


unguarded_reads = st.builds(UnguardedRead, st.sampled_from(["attribute", "hooks"]), texts, texts, st.none() | locations(0))
reasons = st.builds(
    Reason,
    st.sampled_from(["size", "value", "global_state"]),
    texts,
    st.none() | texts,
    st.none() | texts,
    st.none() | locations(),
    requesters=st.lists(locations(0), max_size=2).map(tuple),
)
backward_hooks = st.builds(BackwardHook, st.just("pre_hook"), texts, st.none() | locations(0))
backward_nodes = st.builds(
    BackwardNode,
    counts,
    texts,
    st.none() | locations(0),
    texts,
    texts,
    texts,
    st.lists(backward_hooks, max_size=2).map(tuple),
    counts,
    st.booleans(),
)
recapture_kinds = st.sampled_from(["first", "shape", "value", "hook", "grad", "function", "compiled", "unknown"])
recaptures = st.builds(
    RecaptureReason, recapture_kinds, texts, texts, texts, st.none() | backward_nodes, st.none() | locations(0), texts
)
attempts = st.builds(Attempt, st.integers(0, 9), st.sampled_from(["committed", "restarted"]), seconds, st.none() | texts)
compiles = st.builds(
    Compile,
    counts,
    ids,
    locations(),
    st.sampled_from(["compiled", "skipped", "failed", "gave_up"]),
    seconds,
    st.lists(attempts, max_size=3).map(tuple),
    st.dictionaries(st.sampled_from(["trace", "guards"]), seconds),
    st.none() | counts,
    repeated=st.none() | st.builds(Repeated, texts, texts, counts, seconds, st.lists(texts, max_size=3).map(tuple)),
)
recompiles = st.builds(
    Recompile,
    counts,
    ids,
    locations(),
    st.lists(reasons, max_size=3).map(tuple),
    seconds,
    further=st.lists(reasons, max_size=2).map(tuple),
)
breaks = st.builds(
    GraphBreak,
    locations(),
    st.lists(locations(0), max_size=3).map(tuple),
    texts,
    count=counts,
    kind=texts,
    resumable=st.booleans(),
    compiles=st.lists(st.tuples(counts, ids), max_size=3).map(tuple),
)
guards = st.lists(st.builds(TracedGuard, texts, texts, st.none() | locations(0)), max_size=3).map(tuple)
names = st.lists(texts, max_size=3).map(tuple)
frames = st.builds(FrameState, locations(0), texts, names, st.dictionaries(texts, texts, max_size=3), names, counts)
states = st.builds(
    BreakState,
    ids,
    counts,
    locations(),
    texts,
    texts,
    texts,
    names,
    st.lists(frames, min_size=1, max_size=2).map(tuple),
    texts,
    counts,
    guards,
)
saved_tensors = st.builds(
    SavedTensor,
    texts,
    st.sampled_from(["activation", "param"]),
    texts,
    texts,
    st.lists(counts, max_size=3).map(tuple),
    counts,
    counts,
    st.none() | texts,
    st.none() | texts,
    st.booleans(),
    st.booleans(),
    texts,
    st.none() | locations(),
)
peak_tensors = st.builds(
    PeakTensor, texts, texts, counts, st.sampled_from(["saved", "output", "temporary"]), st.none() | locations()
)
guard_infos = st.builds(
    GuardInfo,
    st.sampled_from(["size", "value", "global_state"]),
    texts,
    st.none() | texts,
    st.none() | locations(0),
    st.lists(locations(0), max_size=2).map(tuple),
)
effect_kinds = st.sampled_from(["attribute", "items", "position", "cell", "global"])
stacks = st.lists(locations(0), max_size=3).map(tuple)
side_effects = st.builds(
    Effect,
    texts,
    effect_kinds,
    texts,
    texts,
    st.none() | locations(),
    stacks,
    st.none() | st.booleans(),
    st.booleans(),
    counts,
    texts,
)
events = st.builds(Mutation, texts, effect_kinds, st.none() | locations(), stacks, st.booleans())
code_lines = st.builds(CodeLine, texts, st.none() | locations(0))
parts = st.sampled_from(["inference", "forward", "backward"])
fixes = st.builds(
    Fix, texts, texts, st.none() | locations(), st.none() | locations(), st.lists(st.builds(Mark, texts, counts)).map(tuple)
)
costs = st.builds(Events, counts, counts, counts, counts, counts, seconds)
by_class = {  # every kind of record that a run may hold
    BreakState: states,
    Logged: st.builds(Logged, ids, locations(), st.dictionaries(texts, texts, max_size=3)),
    TracedCompile: st.builds(TracedCompile, ids, locations(), counts, seconds, seconds, seconds),
    LineCost: st.builds(LineCost, locations(0), texts, counts, seconds, seconds, names, guards, names, counts),
    Compile: compiles,
    Recompile: recompiles,
    GraphBreak: breaks,
    Backward: st.builds(Backward, counts, ids, seconds),
    FrameEffects: st.builds(
        FrameEffects,
        counts,
        ids,
        locations(),
        st.lists(side_effects, max_size=3).map(tuple),
        st.lists(events, max_size=3).map(tuple),
        texts,
        st.booleans(),
    ),
    GaveUp: st.builds(GaveUp, counts, ids, locations(), texts, st.none() | counts),
    CompileUse: st.builds(
        CompileUse,
        counts,
        names,
        names,
        st.booleans(),
        st.none() | locations(),
        st.booleans(),
        st.none() | locations(),
        st.booleans(),
        names,
    ),
    Skipped: st.builds(Skipped, locations(), texts, counts),
    CacheEvent: st.builds(
        CacheEvent, st.sampled_from(["fx_graph", "aot_autograd"]), st.just("bypass"), counts, ids, st.none() | locations()
    ),
    Specialized: st.builds(Specialized, texts, counts, ids, st.none() | locations(), texts),
    BecameDynamic: st.builds(BecameDynamic, texts, texts, texts, texts, counts, ids, st.none() | locations()),
    ProfileMiss: st.builds(ProfileMiss, texts, counts, ids, locations()),
    Unguarded: st.builds(Unguarded, counts, ids, locations(), st.lists(unguarded_reads, max_size=3).map(tuple)),
    StaleValue: st.builds(
        StaleValue,
        counts,
        ids,
        locations(),
        st.just("attribute"),
        texts,
        texts,
        texts,
        counts,
        st.none() | locations(),
        st.none(),
    ),
    TorchWarning: st.builds(TorchWarning, texts, texts, st.none() | locations()),
    Trial: st.builds(
        Trial, texts, texts, locations(), fixes, texts, costs, st.none() | costs, st.none() | st.booleans(), texts
    ),
    IsaCheck: st.builds(IsaCheck, texts, seconds, st.booleans(), st.booleans()),
    EagerTime: st.builds(EagerTime, locations(), seconds, seconds, counts),
    BackwardCapture: st.builds(
        BackwardCapture,
        counts,
        ids,
        st.none() | locations(),
        seconds,
        st.lists(recaptures, max_size=2).map(tuple),
        st.lists(backward_nodes, max_size=3).map(tuple),
        counts,
        counts,
        counts,
        counts,
        order_errors=st.lists(st.builds(OrderError, st.just("pre_hook"), texts, texts), max_size=2).map(tuple),
        moved=counts,
        began=seconds,
        phases=st.dictionaries(st.sampled_from(["trace", "backend"]), seconds),
    ),
    WhatIf: st.builds(
        WhatIf,
        counts,
        texts,
        locations(),
        texts,
        fixes,
        st.sampled_from(["removes", "raises", "not proven"]),
        counts,
        counts,
        texts,
        seconds,
        st.none() | st.tuples(texts, counts, texts),
        st.none() | breaks,
        texts,
        st.just(()) | st.tuples(fixes),
    ),
    Trouble: st.builds(Trouble, texts, texts),
    Skip: st.builds(Skip, texts, st.none() | locations(0), texts, st.sampled_from(["operator", "size"]), counts),
    GraphRecorded: st.builds(GraphRecorded, parts, seconds, counts, counts, counts),
    AddressChange: st.builds(AddressChange, texts, counts, counts, counts, st.none() | locations(0), st.booleans()),
    CompiledGuards: st.builds(CompiledGuards, counts, ids, locations(), st.lists(guard_infos, max_size=3).map(tuple), counts),
    SavedGraph: st.builds(
        SavedGraph,
        counts,
        ids,
        st.none() | locations(),
        st.lists(saved_tensors, max_size=3).map(tuple),
        st.booleans(),
        at_peak=st.lists(peak_tensors, max_size=2).map(tuple),
    ),
    KeySettings: st.builds(KeySettings, texts, st.dictionaries(texts, texts, max_size=3)),
    CacheKey: st.builds(
        CacheKey,
        st.sampled_from(["fx_graph", "aot_autograd"]),
        texts,
        counts,
        ids,
        st.none() | locations(),
        st.booleans(),
        texts,
        texts,
        st.dictionaries(texts, texts, max_size=3),
        st.dictionaries(texts, texts, max_size=3),
        st.lists(code_lines, max_size=3).map(tuple),
    ),
    GraphCode: st.builds(GraphCode, counts, ids, locations(), st.lists(code_lines, max_size=3).map(tuple), counts),
}
records = st.one_of(*by_class.values())
