"""Lines of a newer dynx, and damaged lines, take little more memory than the file has bytes."""

from __future__ import annotations

import json
import pickle
import tracemalloc
import warnings

import pytest

from dynx import Run
from dynx._runfile.contents import UnknownLines

HEADER = json.dumps({"type": "header", "dynx_run": 1, "torch": "2"})


def load(path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return Run.load(path)


@pytest.mark.slow
@pytest.mark.parametrize(
    "line",
    ['{"type": "later", "values": [1, 2, 3, {"a": null, "b": "text"}, 4.5, 6, 7]}', '{"type": "x"}', "not JSON", "[]"],
    ids=["unknown", "short", "damaged", "list"],
)
def test_a_file_of_other_lines_takes_little_memory(line, tmp_path):
    path = tmp_path / "run.dynx"
    count = 400_000 // len(line)
    path.write_text("\n".join([HEADER, *[line] * count]))
    tracemalloc.start()
    run = load(path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 3 * path.stat().st_size
    if "type" in line:
        assert len(run.unknown) == count
        assert run.unknown[-1] == json.loads(line)
    else:
        assert len(run.problems) == 10_001
        assert run.problems[-1] == f"{count - 10_000} more lines cannot be read"


def test_unknown_lines_are_a_sequence_of_objects():
    lines = UnknownLines()
    objects = [{"type": "a", "n": 1}, {"type": None, "m": 2}, {"type": "c"}]
    for line in ('{"n": 1, "type": "a"}\n', '{"m": 2}', '{"type": "c"}\n'):
        lines.append(line.encode())
    assert list(lines) == objects
    assert lines == tuple(objects)
    assert lines == objects
    assert lines != objects[:2]
    assert lines != "abc"
    assert lines[1:] == tuple(objects[1:])
    assert lines[-1] == objects[-1]
    assert pickle.loads(pickle.dumps(lines)) == objects
    with pytest.raises(IndexError):
        lines[3]


def test_a_run_with_unknown_lines_is_saved_as_it_was(tmp_path):
    first, second = tmp_path / "a.dynx", tmp_path / "b.dynx"
    end = '{"type": "end", "seconds": 1.0, "outcome": "finished"}'
    first.write_text("\n".join([HEADER, '{"type": "later", "n": 1}', end]) + "\n")
    run = load(first)
    run.save(second)
    assert load(second).unknown == run.unknown == ({"type": "later", "n": 1},)
    assert load(second) == run
