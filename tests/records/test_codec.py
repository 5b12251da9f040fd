"""Encoding records as JSON and decoding them."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from strategies import by_class, records

from dynx import Run
from dynx.records import Compile, Location
from dynx.records.codec import InvalidRecord, from_data, to_data, visible
from dynx.records.kind import kinds_of

HERE = Location("train.py", 41, "main")


@given(records)
def test_record_is_equal_after_a_json_round_trip(record):
    assert from_data(type(record), json.loads(json.dumps(to_data(record)))) == record


def test_every_kind_of_record_has_a_hypothesis_strategy():
    """A kind without a strategy would be untested in JSON and in run files."""
    assert set(by_class) == {kind.record for kind in kinds_of(Run)}


def test_unknown_fields_of_a_record_are_kept():
    """An older dynx that saves a run again must not lose fields that a newer dynx wrote."""
    data = {**to_data(HERE), "gpu": 3}
    assert to_data(from_data(Location, data)) == data


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        ([], "Location is a list, expected a JSON object"),
        ({"file": "a.py", "line": 1}, "Location.function is missing"),
        ({"file": "a.py", "line": "1", "function": "f"}, "Location.line is a str, expected int"),
        ({"file": "a.py", "line": True, "function": "f"}, "Location.line is a bool, expected int"),
        ({"file": "a.py", "line": 1 << 63, "function": "f"}, "Location.line is an integer of 64 bits; dynx reads at most 63"),
        ({"file": "a.py", "line": 1, "function": "f", "caller": 3}, "Location is a int, expected a JSON object"),
    ],
)
def test_decoding_a_field_of_the_wrong_type_raises_and_names_the_field(data, complaint):
    with pytest.raises(InvalidRecord, match=complaint):
        from_data(Location, data)


def test_decoding_nan_seconds_raises():
    """NaN would put a finding anywhere in a sorted list."""
    data = {**to_data(Compile(0, "0/0", HERE, "compiled", 1.0)), "seconds": float("nan")}
    with pytest.raises(InvalidRecord, match="expected a finite number"):
        from_data(Compile, data)


def test_control_characters_in_a_record_become_visible_escapes():
    """A run file from somebody else must not be able to control the terminal."""
    assert visible("a\x1b[2Jb\u202ec\td\n") == "a\\x1b[2Jb\\x202ec\td\n"
    assert from_data(Location, {"file": "\x1b]0;owned\x07", "line": 1, "function": "f"}).file == "\\x1b]0;owned\\x07"


def test_decoding_truncates_a_very_long_string():
    long = from_data(Location, {"file": "x" * 10**6, "line": 1, "function": "f"})
    assert len(long.file) == 100_001
