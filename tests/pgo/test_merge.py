"""`Profile.merge`, `diff` and `prune`: the join of profiles is that of torch, in any order."""

from __future__ import annotations

import copy
import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.profiles import profile_of, profiles, sources
from torch._dynamo import pgo as torch_pgo

from dynx._torch.shapes import code_state
from dynx.errors import UsageError
from dynx.pgo import Profile
from dynx.pgo._merge import join
from dynx.records.profile import DYNAMIC, Seen, SourceProfile


def torch_entry(source):
    return torch_pgo.FrameStateSizeEntry(*map(code_state._torch_atoms, source[:3]))


class TestJoin:
    @given(sources, sources)
    def test_it_is_that_of_torch(self, a, b):
        entry = torch_entry(a)
        entry |= torch_entry(b)
        expected = code_state.plain_sizes(entry)
        if "nan" in (a.scalar, b.scalar) and a.scalar == b.scalar:  # for torch nan differs from itself
            expected = expected._replace(scalar="nan")
        assert join(a, b)._replace(seen=()) == expected

    @pytest.mark.slow
    @given(profiles, profiles)
    def test_the_order_does_not_matter(self, a, b):
        assert a.merge(b).to_json() == b.merge(a).to_json()

    def test_equal_numbers_of_two_types_are_one_value(self):
        whole, real = (profile_of(SourceProfile(scalar=one, seen=(Seen(None, one, "A", "0/0"),))) for one in (1, 1.0))
        assert whole.merge(real).to_json() == real.merge(whole).to_json() == whole.to_json()

    @pytest.mark.slow
    @given(profiles, profiles, profiles)
    def test_the_grouping_does_not_matter(self, a, b, c):
        assert a.merge(b).merge(c).to_json() == a.merge(b.merge(c)).to_json() == a.merge(b, c).to_json()

    @pytest.mark.slow
    @given(profiles, profiles)
    def test_a_profile_counts_once(self, a, b):
        merged = a.merge(b)
        assert merged.merge(a, b, merged).to_json() == merged.to_json()
        assert a.merge() == a.merge(a)

    def test_both_values_of_a_size_stay(self):
        first = profile_of(SourceProfile(size=(4,), seen=(Seen(0, 4, "A", "0/0"),)))
        second = profile_of(SourceProfile(size=(6,), seen=(Seen(0, 6, "B", "0/0"),)))
        source = first.merge(second).frames[0].sources["L['x']"]
        assert source.size == (DYNAMIC,)
        assert [seen.value for seen in source.values(0)] == [4, 6]

    def test_a_size_with_many_values_keeps_the_smallest_and_largest(self):
        many = [profile_of(SourceProfile(size=(n,), seen=(Seen(0, n, "A", f"0/{n}"),))) for n in range(100)]
        source = Profile().merge(*many).frames[0].sources["L['x']"]
        assert [seen.value for seen in source.seen] == [0, 1, 2, 3, 96, 97, 98, 99]

    def test_equal_numbers_of_other_types_merge_in_either_order(self):
        one, same = profile_of(SourceProfile(scalar=1, size=DYNAMIC)), profile_of(SourceProfile(scalar=1.0, size=DYNAMIC))
        assert one.merge(same).to_json() == same.merge(one).to_json()


class TestDiff:
    def test_it_lists_what_changed(self):
        before = profile_of(SourceProfile(DYNAMIC, (2, 4), (4, 1)))
        after = profile_of(SourceProfile(DYNAMIC, (2, DYNAMIC), (4, 1)))
        assert [(change.source, change.dim, change.before, change.after) for change in before.diff(after)] == [
            ("L['x']", 1, 4, DYNAMIC)
        ]

    def test_functions_that_one_profile_lacks_are_listed(self):
        profile = profile_of(SourceProfile(DYNAMIC, (2,), (1,)))
        assert [(change.before, change.after) for change in Profile().diff(profile)] == [(None, 2)]
        assert [(change.before, change.after) for change in profile.diff(Profile())] == [(2, None)]

    @pytest.mark.slow
    @given(profiles)
    def test_a_profile_does_not_differ_from_itself(self, profile):
        assert not profile.diff(copy.deepcopy(profile))

    @pytest.mark.slow
    @given(profiles, profiles)
    def test_a_merged_profile_differs_where_torch_learned(self, a, b):
        for change in a.diff(a.merge(b)):
            assert change.before is None or change.after in (DYNAMIC, None) or change.before == change.after


class TestPrune:
    PROFILE = profile_of(SourceProfile(DYNAMIC, (2, DYNAMIC, DYNAMIC), ("size(1)*stride(1)", 1, 1)))

    def test_dropped_sizes_are_not_known(self):
        pruned = self.PROFILE.prune(drop=re.escape("L['x']"))
        assert pruned.frames[0].sources["L['x']"].size == (2, None, None)

    def test_sizes_that_are_not_kept_are_not_known(self):
        assert self.PROFILE.prune(keep="L.*") == self.PROFILE
        assert self.PROFILE.prune(keep="y") == self.PROFILE.prune(drop=".*")

    def test_a_dynamic_number_is_forgotten(self):
        profile = profile_of(SourceProfile(DYNAMIC, DYNAMIC, DYNAMIC))
        assert profile.prune(drop=".*").frames[0].sources == {}

    def test_static_sizes_stay(self):
        profile = profile_of(SourceProfile(DYNAMIC, (2, 3), (3, 1)))
        assert profile.prune(drop=".*") == profile

    @pytest.mark.slow
    @given(profiles)
    def test_without_arguments_nothing_is_pruned(self, profile):
        assert {frame.key: frame.sources for frame in profile.prune().frames} == {
            frame.key: {name: source for name, source in frame.sources.items() if source != SourceProfile()}
            for frame in profile.frames
        }

    def test_an_invalid_expression(self):
        with pytest.raises(UsageError, match="no regular expression"):
            self.PROFILE.prune(drop="L[")


def test_dynamic_sources_name_what_torch_reads():
    import torch
    from torch._dynamo.variables.builder import is_dynamic_source

    profile = Profile().merge(
        profile_of(SourceProfile(DYNAMIC, (DYNAMIC,), (1,))),
        profile_of(SourceProfile(DYNAMIC, (3,), (1,)), file_hash="00000002"),
    )
    assert profile.to_dynamic_sources() == "L['x']"
    with torch.compiler.config.patch(dynamic_sources=profile.to_dynamic_sources()):
        assert is_dynamic_source("L['x']")


@given(st.floats(allow_nan=True, allow_infinity=True))
def test_floats_survive_the_conversion(number):
    entry = torch_pgo.FrameStateSizeEntry(number, torch_pgo.auto_dynamic, torch_pgo.auto_dynamic)
    plain = code_state.plain_sizes(entry)
    back = torch_entry(plain).scalar
    assert back == number or (math.isnan(back) and math.isnan(number))
