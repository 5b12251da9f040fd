"""A kind of record is declared once; run files, JSON, the terminal and the notebook derive from the declaration."""

from __future__ import annotations

import io
import json
from dataclasses import dataclass, replace

import pytest
from rich.console import Console

from dynx import Run
from dynx.records import Compile, Location, Record
from dynx.records.codec import NAMES, register
from dynx.records.kind import Kind, kinds_of
from dynx.records.table import Change, Seconds, Table, Times
from dynx.report import terminal

HERE = Location("model.py", 12, "f")


@dataclass(frozen=True, slots=True)
class Hologram(Record):
    """A record class that dynx does not know."""

    name: str
    location: Location
    seconds: float
    count: int = 1


def merged(records):
    """Merge holograms with the same name into one with a count."""
    by_name = {}
    for record in records:
        known = by_name.get(record.name)
        by_name[record.name] = record if known is None else replace(known, count=known.count + record.count)
    return tuple(by_name.values())


class HologramRun(Run):
    """A run with one more kind of record, which is declared here and nowhere else."""

    holograms = Kind(
        Hologram,
        "projection",
        "What was projected.",
        merge=merged,
        table=Table(
            "Holograms",
            ("seconds", "name", "where", "count"),
            lambda record: [(Seconds(record.seconds), record.name, record.location, Times(record.count))],
        ),
    )


RUN = HologramRun((Hologram("<cat>", HERE, 0.5), Hologram("<cat>", HERE, 0.5), Hologram("dog", HERE, 0.25)))
CAT, DOG = Hologram("<cat>", HERE, 0.5, 2), Hologram("dog", HERE, 0.25)


def screen(run, *, full):
    console = Console(width=80, file=io.StringIO(), color_system=None)
    console.print(terminal(run, full=full))
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


def test_new_kind_of_record_is_a_property_of_the_run_with_merged_records():
    assert RUN.holograms == (CAT, DOG)
    assert HologramRun.holograms.__doc__ == "What was projected."


def test_new_kind_of_record_is_in_the_json_of_a_run():
    groups = json.loads(RUN.to_json())
    assert [hologram["name"] for hologram in groups["holograms"]] == ["<cat>", "dog"]
    assert groups["holograms"][0]["type"] == "projection"
    assert list(groups)[-1] == "holograms"


def test_new_kind_of_record_is_saved_and_loaded_with_a_run_file(tmp_path):
    RUN.save(tmp_path / "run.dynx")
    assert HologramRun.load(tmp_path / "run.dynx") == RUN


def test_full_terminal_report_lists_a_new_kind_of_record():
    lines = screen(RUN, full=True)
    start = lines.index(" Holograms")
    assert lines[start : start + 5] == [
        " Holograms",
        "  500 ms  <cat>",
        "          model.py:12  f",
        "  250 ms  dog",
        "          model.py:12  f",
    ]
    assert " Holograms" not in screen(RUN, full=False)


def test_notebook_report_lists_a_new_kind_of_record():
    page = RUN._repr_html_()
    assert 'Holograms <span class="dim">2</span>' in page
    assert '<td class="n">500 ms</td><td>&lt;cat&gt;</td><td>model.py:12  f</td><td class="n">2</td>' in page


def test_new_kind_of_record_adds_no_property_to_other_run_classes():
    assert not hasattr(Run(), "holograms")
    assert kinds_of(HologramRun) == (*kinds_of(Run), HologramRun.holograms)


def test_registering_a_record_name_for_a_second_class_raises():
    """A run file identifies the class of a record by this name."""
    with pytest.raises(ValueError, match="'compile' is already registered for class Compile"):
        register("compile", Hologram)
    assert NAMES["compile"] is Compile


def test_run_property_of_a_record_class_excludes_its_subclasses():
    @dataclass(frozen=True, slots=True)
    class Moving(Hologram):
        pass

    assert HologramRun((Moving("bird", HERE, 1.0),)).holograms == ()


@pytest.mark.parametrize(("change", "text"), [(Change("3", "4"), "3, then 4"), (Change(None, "4"), "?, then 4")])
def test_change_shows_an_unknown_old_value_as_a_question_mark(change, text):
    assert str(change) == text
