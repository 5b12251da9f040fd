"""Every recompile reason is correct in both directions: from the first value to the second, and from the second to the first."""

from __future__ import annotations

import pytest
from flips import FLIPS, Seen

from dynx import guards


def seen(reason):
    return Seen(reason.kind, reason.source, reason.expected, reason.got)


def first_reason(before, after):
    """Return the first reason of the recompile that `after` causes; None if it runs the entry that `before` compiled."""
    with guards.recompiles() as log:
        before()
        assert not list(log), "the first call found an entry of an earlier flip"
        after()
    return seen(log[0].reasons[0]) if list(log) else None


@pytest.mark.parametrize("name", FLIPS)
def test_flip_reports_the_expected_and_the_actual_value(name):
    flip = FLIPS[name]()
    assert first_reason(flip.first, flip.second) == flip.there


@pytest.mark.parametrize("name", FLIPS)
def test_reverse_flip_reports_the_values_exchanged(name):
    """A swapped pair sends the user to the call that was not changed."""
    flip = FLIPS[name]()
    assert first_reason(flip.second, flip.first) == flip.back
