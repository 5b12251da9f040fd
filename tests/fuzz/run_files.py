"""Damaged and hostile run files: no view may raise, hang, or interpret what is in them, and no assertion may pass.

Mutants of a run file with all kinds of records are shown, asserted, converted to a timeline, HTML and JSON, each in at most ten
seconds and a gigabyte. Reading a run needs no torch.

python tests/fuzz/run_files.py [--mutants 300] [--seed 0]
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import random
import resource
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parent.parent))
from strategies import records

from dynx import Run
from dynx.cli import main as dynx
from dynx.errors import BadRunFile
from dynx.records import Compile, Location

SECONDS, GIGABYTE = 10, 2**30
TEXTS = [
    "[/x]",
    "[link=https://example.com]qqlink[/link]",
    "[bold]qqbold[/]",
    "\x1b[31mred",
    "\u202eright to left",
    "<script>1</script>",
    "x" * 5000,
    "",
    "[",
    "\\",
]
VALUES = [None, True, -1, 0, 10**400, 1e308, -1e308, float("nan"), float("inf"), "", "1e5", [], {}, [[]], {"a": 1}]
HEADER = {"torch": "2.13.0", "python": "3.11.7", "command": ["dynx", "run", "train.py"], "began": 1.7e9, "device": "cpu"}


class TooSlow(Exception):
    """A view took longer than ten seconds."""


def sample(folder: Path, number: int) -> bytes:
    """Return the bytes of a run file with random records, of which `dynx assert` finds nothing wrong."""
    events: list[Any] = []

    @seed(number)
    @settings(max_examples=25, database=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck), deadline=None)
    @given(st.lists(records, min_size=5, max_size=30))
    def draw(drawn: list[Any]) -> None:
        events.extend(event for event in drawn if getattr(event, "outcome", "") != "failed")

    draw()
    here = Location("train.py", 41, "main")
    kept = [Compile(0, "0/0", here, "compiled", 1.5), *random.Random(number).sample(events, 40)]
    path = folder / "sample.dynx"
    Run(tuple(kept), HEADER, {"seconds": 3.0, "outcome": "finished"}).save(path)
    return path.read_bytes()


def paths_in(data: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the paths of all values in JSON data."""
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    return [path, *(inner for key, value in items for inner in paths_in(value, (*path, key)))]


def with_value(data: Any, path: tuple[Any, ...], value: Any) -> Any:
    if not path:
        return value
    copy = dict(data) if isinstance(data, dict) else list(data)
    copy[path[0]] = with_value(data[path[0]], path[1:], value)
    return copy


def changed_value(rng: random.Random, lines: list[bytes]) -> None:
    """Replace a value of a record, the header or the end line, perhaps by a text that a terminal or browser would interpret."""
    index = rng.randrange(len(lines))
    data = json.loads(lines[index])
    path = rng.choice(paths_in(data)[1:] or [()])
    lines[index] = json.dumps(with_value(data, path, rng.choice(TEXTS + VALUES))).encode()


def changed_texts(rng: random.Random, lines: list[bytes]) -> None:
    """Replace all texts but the kinds of records, and leave out the checksum: the file is whole, and hostile."""
    text = rng.choice(TEXTS)

    def replaced(data: Any) -> Any:
        if isinstance(data, dict):
            return {key: value if key == "type" else replaced(value) for key, value in data.items() if key != "crc32"}
        return list(map(replaced, data)) if isinstance(data, list) else text if isinstance(data, str) else data

    lines[:] = [json.dumps(replaced(json.loads(line))).encode() for line in lines]


def changed_bytes(rng: random.Random, lines: list[bytes]) -> None:
    index = rng.randrange(len(lines))
    line = bytearray(lines[index])
    for _ in range(rng.randrange(1, 4)):
        line[rng.randrange(len(line))] = rng.randrange(256)
    lines[index] = bytes(line)


def cut(rng: random.Random, lines: list[bytes]) -> None:
    index = rng.randrange(len(lines))
    lines[index] = lines[index][: rng.randrange(len(lines[index]))]


def removed(rng: random.Random, lines: list[bytes]) -> None:
    del lines[rng.randrange(len(lines))]


def repeated(rng: random.Random, lines: list[bytes]) -> None:
    lines.insert(rng.randrange(len(lines)), rng.choice(lines))


def swapped(rng: random.Random, lines: list[bytes]) -> None:
    first, second = rng.sample(range(len(lines)), 2)
    lines[first], lines[second] = lines[second], lines[first]


def unknown_kind(rng: random.Random, lines: list[bytes]) -> None:
    lines.insert(len(lines) - 1, json.dumps({"type": rng.choice(["hologram", None, 3, "", []]), "size": 1}).encode())


def newer(rng: random.Random, lines: list[bytes]) -> None:
    lines[0] = json.dumps({**json.loads(lines[0]), "dynx_run": rng.choice([2, "2", None, 1.5, 10**30])}).encode()


def nested(rng: random.Random, lines: list[bytes]) -> None:
    index, depth = rng.randrange(len(lines)), rng.choice([100, 600, 900, 20_000])
    data = json.loads(lines[index])
    data["extra_field"] = 0
    lines[index] = json.dumps(data).replace('"extra_field": 0', f'"extra_field": {"[" * depth}{"]" * depth}').encode()


VALUES_AND_TEXTS = (changed_value, changed_value, changed_value, changed_texts)
MUTATIONS = (*VALUES_AND_TEXTS, changed_bytes, cut, removed, repeated, swapped, unknown_kind, newer, nested)
VIEWS = {
    "show": ["show"],
    "show --full": ["show", "--full"],
    "show --json": ["show", "--json"],
    "trace": ["trace", "-o", "OUT"],
    "HTML": [],
    "assert": ["assert", "--max-recompiles", "1000", "--max-compiles", "1000"],
}
MAY_EXIT_WITH = {"assert": (1, 2, 3)}


def problems_of(file: Path, name: str, out: Path, codes: tuple[int, ...] = ()) -> str | None:
    """Return what is wrong with a view of a run file; None if nothing is."""
    command = [str(out) if word == "OUT" else word for word in VIEWS[name]]
    printed, errors = io.StringIO(), io.StringIO()
    signal.alarm(SECONDS)
    try:
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(errors), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            code = dynx([command[0], str(file), *command[1:]]) if command else _html(file, out)
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 1
    except BaseException:  # noqa: BLE001 - reported
        return traceback.format_exc()
    finally:
        signal.alarm(0)
    allowed = codes or MAY_EXIT_WITH.get(name, (0, 2))
    if code not in allowed:
        return f"exit code {code}, not one of {allowed}: {printed.getvalue()[:300]}"
    text = printed.getvalue()
    if "Traceback" in errors.getvalue():
        return errors.getvalue()
    if "\x1b]8" in text or "\x1b[31mred" in text or "\u202e" in text:
        return "prints what a terminal interprets"
    if any(word in text and f"]{word}" not in text for word in ("qqlink", "qqbold")):
        return "interprets markup of the file"
    if out.exists() and code == 0:
        written = out.read_text()
        out.unlink()
        if "<script>1" in written and name == "HTML":
            return "HTML with a script of the file"
        text = written if name == "trace" else text
    if name in ("show --json", "trace") and code == 0:
        try:
            json.loads(text, parse_constant=_refuse)
        except ValueError as error:
            return f"no valid JSON: {error}"
    return None


def _html(file: Path, out: Path) -> int:
    try:
        out.write_text(Run.load(file)._repr_html_())
    except BadRunFile:
        return 2
    return 0


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def _raise(*_: object) -> None:
    raise TooSlow


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--mutants", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    signal.signal(signal.SIGALRM, _raise)
    rng, problems, began = random.Random(options.seed), Counter[str](), time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for number in range(options.mutants):
            if number % 50 == 0:
                lines_of_sample = sample(folder, options.seed * 1000 + number).splitlines()
                if (problem := problems_of(folder / "sample.dynx", "assert", folder / "out", (0,))) is not None:
                    sys.exit(f"the sample is no good run: {problem}")
            lines = list(lines_of_sample)
            mutation = rng.choice(MUTATIONS)
            mutation(rng, lines)
            file = folder / f"{rng.choice(['run', '[red]run', 'r[x]'])}.dynx"
            file.write_bytes(b"\n".join(lines) + b"\n")
            is_changed = lines != lines_of_sample
            for view in VIEWS:
                if view == "assert" and not is_changed:
                    continue
                codes = (0, 1, 2, 3) if mutation is changed_texts else ()  # a whole file, of which all is read
                if (problem := problems_of(file, view, folder / "out", codes)) is not None:
                    kept = Path(tempfile.gettempdir()) / f"mutant-{options.seed}-{number}.dynx"
                    kept.write_bytes(file.read_bytes())
                    problems[f"{view}: {problem.strip().splitlines()[-1][:150]}"] += 1
                    if problems[f"{view}: {problem.strip().splitlines()[-1][:150]}"] == 1:
                        print(f"mutant {number} ({mutation.__name__}), {view}, kept as {kept}\n{problem[-1500:]}")
            file.unlink()
    megabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    seconds = time.monotonic() - began
    total = sum(problems.values())
    print(f"{options.mutants} mutants, {len(VIEWS)} views each, {seconds:.0f} s, {megabytes:.0f} MiB: {total} problems")
    for problem, count in problems.most_common():
        print(f"{count:5}  {problem}")
    return int(bool(problems) or megabytes * 2**20 > GIGABYTE)


if __name__ == "__main__":
    sys.exit(main())
