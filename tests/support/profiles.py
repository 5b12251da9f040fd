"""Profiles for tests, and Hypothesis strategies for them."""

from __future__ import annotations

from hypothesis import strategies as st

from dynx.pgo import Profile
from dynx.pgo._merge import join_frames, kept_graphs, with_seen
from dynx.records.profile import DYNAMIC, NOT_FINITE, FrameProfile, GraphSize, Seen, SourceProfile

texts = st.text(st.characters(categories=("L", "N", "P", "S", "Zs")), max_size=12).filter(str.isprintable)
numbers = st.integers(-5, 5) | st.sampled_from([2**62, -(2**63), 0.5, 1.0, *NOT_FINITE])
sizes = st.integers(0, 4) | st.just(DYNAMIC) | st.none()


def sizes_with_strides(count):
    """Sizes and strides of a tensor with `count` dims."""
    strides = st.integers(0, 4) | st.sampled_from([DYNAMIC, None, *(f"size({dim})*stride({dim})" for dim in range(count))])
    tuples = (st.lists(item, min_size=count, max_size=count).map(tuple) for item in (sizes, strides))
    return st.tuples(next(tuples), st.none() | st.just(DYNAMIC) | next(tuples))


runs = (st.sampled_from("AB"), st.sampled_from(["0/0", "0/1"]))
seen = st.lists(
    st.builds(Seen, st.none(), numbers, *runs)
    | st.builds(Seen, st.integers(0, 2), st.sampled_from([0, 1, 2, 3, 2**62]), *runs),
    max_size=12,
)
sources = st.builds(
    lambda scalar, known, values: with_seen(SourceProfile(scalar, *known), values),
    numbers | st.just(DYNAMIC) | st.none(),
    st.sampled_from([(None, None), (DYNAMIC, None), (DYNAMIC, DYNAMIC)]) | st.integers(0, 3).flatmap(sizes_with_strides),
    seen,
)
bounds = st.none() | st.integers(0, 4)
graph_sizes = (
    st.builds(GraphSize, st.just("L['k']"), st.none(), st.just(True), bounds, bounds)
    | st.builds(GraphSize, st.just("L['x']"), st.integers(0, 2), st.just(True), bounds, bounds)
    | numbers.map(lambda value: GraphSize("L['k']", None, False, value, value))
    | st.integers(0, 4).map(lambda value: GraphSize("L['x']", 0, False, value, value))
)
graphs = st.lists(graph_sizes, min_size=1, max_size=3, unique_by=lambda size: size[:2]).map(
    lambda sizes: tuple(sorted(sizes, key=lambda size: (size.source, size.dim or 0)))
)
frames = st.builds(
    FrameProfile,
    file=st.sampled_from(["/a/model.py", "/b/model.py"]),
    file_hash=st.sampled_from(["00000001", "00000002"]),
    name=st.sampled_from(["f", "torch_dynamo_resume_in_f_at_3", "<lambda>"]),
    line=st.integers(1, 2),
    closure=st.none() | st.integers(-(2**63), 2**63 - 1),
    qualname=st.none() | texts,
    source_hash=st.none() | texts,
    offset=st.integers(0, 3),
    sources=st.dictionaries(st.sampled_from(["L['x']", "L['y']", "L['k']"]), sources, max_size=3),
    graphs=st.lists(graphs, max_size=3).map(kept_graphs),
)
profiles = st.builds(
    lambda listed, runs, versions: Profile(join_frames(listed), runs, tuple(sorted(versions))),
    st.lists(frames, max_size=4),
    st.dictionaries(st.sampled_from("AB"), texts),
    st.sets(st.sampled_from(["2.11.0", "2.13.0"])),
)


def profile_of(source, file="/a/model.py", **fields):
    """A profile of one function with one source."""
    frame = FrameProfile(file, fields.pop("file_hash", "00000001"), "f", 3, sources={"L['x']": source}, **fields)
    return Profile((frame,), {"A": "2026-11-23T09:00:00 train.py"}, ("2.13.0",))
