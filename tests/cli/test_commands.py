"""The commands of `dynx` that read a saved run, called in the process of the tests."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from dynx import Run
from dynx.cli import main
from dynx.records import Compile, GraphBreak, Location, Reason, Recompile

HERE = Location("train.py", 41, "main")


@pytest.fixture
def saved(tmp_path):
    """Save a run with one recompile caused by a size and one graph break caused by print."""
    reason = Reason("size", "x.size()[1]", "3", "4", HERE, holder="argument")
    events = (
        Compile(0, "0/0", HERE, "compiled", 1.5),
        Recompile(0, "0/1", HERE, (reason,), 2.0),
        GraphBreak(HERE, (HERE,), "Failed to trace builtin operator", kind="Failed to trace builtin operator", callee="print"),
    )
    path = tmp_path / "run.dynx"
    Run(events, {"torch": "2.13.0", "command": ["dynx", "run", "train.py"]}, {"seconds": 3.0}).save(path)
    return str(path)


def test_dynx_show_prints_the_advice_of_a_saved_run(saved, capsys):
    assert main(["show", saved]) == 0
    assert "mark_dynamic(x, 1)" in capsys.readouterr().out


def test_dynx_show_json_prints_the_findings_of_a_saved_run(saved, capsys):
    assert main(["show", saved, "--json"]) == 0
    assert [finding["rule"] for finding in json.loads(capsys.readouterr().out)["findings"]] == ["DX102", "DX201"]


def test_dynx_trace_writes_a_perfetto_file(saved, tmp_path, capsys):
    out = tmp_path / "trace.json"
    assert main(["trace", saved, "-o", str(out)]) == 0
    assert "perfetto" in capsys.readouterr().out
    assert json.loads(out.read_text())["otherData"]["torch"] == "2.13.0"


@pytest.fixture
def faster(tmp_path):
    """Save a run of the program of `saved`, with the size marked as dynamic."""
    path = tmp_path / "faster.dynx"
    events = (
        Compile(0, "0/0", HERE, "compiled", 1.0),
        GraphBreak(HERE, (HERE,), "Failed to trace builtin operator", kind="Failed to trace builtin operator", callee="print"),
    )
    Run(events, {"torch": "2.13.0", "command": ["dynx", "run", "train.py"]}, {"seconds": 3.0}).save(path)
    return str(path)


def test_dynx_diff_exits_with_1_if_a_cause_is_new(saved, faster, capsys):
    assert main(["diff", saved, faster]) == 0
    assert "x.size()[1]" in capsys.readouterr().out
    assert main(["diff", faster, saved]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("worse  1 cause")
    assert lines[2].split()[:3] == ["new", "recompile", "x.size()[1]"]


def test_dynx_diff_compares_the_time_of_compiling_only_when_asked(saved, faster, capsys):
    assert main(["diff", faster, faster]) == 0
    assert main(["diff", saved, faster, "--max-slower", "1.2"]) == 0
    assert main(["diff", saved, faster, "--max-slower", "0.5"]) == 1
    assert "FAILED compiling takes 0.67 times as long, at most 0.5 allowed" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["diff", saved, faster, "--max-slower", "nan"])


def test_dynx_diff_json(saved, faster, capsys):
    assert main(["diff", saved, faster, "--json"]) == 0
    (recompile, *_) = json.loads(capsys.readouterr().out)["causes"]
    assert (recompile["kind"], recompile["before"], recompile["after"]) == ("recompile", 1, 0)


@pytest.mark.filterwarnings("ignore:.*line")
def test_dynx_diff_of_a_damaged_file_exits_with_3(saved, faster, capsys):
    with Path(saved).open("a") as file:
        file.write("{damaged\n")
    assert main(["diff", saved, faster]) == 3
    assert "not all of the first run can be read" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "code", "output"),
    [
        (["--max-recompiles", "1", "--max-graph-breaks", "1", "--max-gave-up", "0"], 0, "ok: <Run"),
        (["--max-recompiles", "0"], 1, "FAILED recompiles: 1, at most 0 allowed"),
        (["--max-findings", "1"], 1, "FAILED findings: 2, at most 1 allowed"),
        (["--max-compile-seconds", "1"], 1, "FAILED compile seconds: 1.5, at most 1 allowed"),
        (["--forbid", "DX201"], 1, "FAILED DX201 at train.py:41 in main: print() splits the graph in two"),
        (["--forbid", "DX301"], 0, "ok: <Run"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_dynx_assert_fails_if_a_limit_is_exceeded_or_a_forbidden_rule_has_a_finding(saved, capsys, options, code, output):
    assert main(["assert", saved, *options]) == code
    assert output in capsys.readouterr().out


@pytest.mark.parametrize("options", [["--max-recompiles", "-1"], ["--max-recompiles", "many"]], ids=" ".join)
def test_dynx_assert_limit_must_be_a_non_negative_integer(saved, capsys, options):
    with pytest.raises(SystemExit, match="2"):
        main(["assert", saved, *options])
    assert "is not a non-negative integer" in capsys.readouterr().err or options[1] == "-1"


@pytest.mark.parametrize(
    ("before", "after", "why"),
    [
        ('"compiled"', '"cached"', "were changed after they were written"),
        ('"compiled"', "3", "Compile.outcome is a int, expected str"),
        ('"type": "compile"', '"type": "hologram"', "were changed after they were written"),
        ('"dynx_run": 1', '"dynx_run": 2', "format is version 2"),
        ('"end"', '"END"', "were changed after they were written"),
    ],
)
def test_dynx_assert_checks_nothing_in_a_file_that_is_not_wholly_read(saved, capsys, before, after, why):
    """Else a recompile in a damaged line would not count, and the check would pass."""
    path = Path(saved)
    path.write_text(path.read_text().replace(before, after, 1))
    assert main(["assert", saved, "--max-recompiles", "1000"]) == 3
    printed = capsys.readouterr()
    assert printed.out.startswith(f"UNREADABLE {saved}: ")
    assert why in printed.out + printed.err


def test_dynx_assert_checks_nothing_where_records_have_an_unknown_kind(saved, capsys):
    lines = Path(saved).read_text().splitlines()
    Path(saved).write_text(
        "\n".join([*lines[:-2], '{"type": "hologram"}', lines[-2]]).replace('"has_checksum": true, ', "") + "\n"
    )
    assert main(["assert", saved, "--max-recompiles", "1000"]) == 3
    assert "it has records of an unknown kind, hologram: upgrade dynx" in capsys.readouterr().out


@pytest.mark.parametrize("seconds", ["nan", "-1", "inf", "soon"])
def test_dynx_assert_refuses_limits_that_are_no_seconds(saved, seconds):
    with pytest.raises(SystemExit):
        main(["assert", saved, "--max-compile-seconds", seconds])


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_reports_are_printed_where_the_encoding_lacks_characters(saved, encoding):
    for command in (["show", saved], ["show", saved, "--full"], ["rule", "DX101"]):
        process = subprocess.run(
            [sys.executable, "-m", "dynx", *command],
            env={**os.environ, "PYTHONIOENCODING": encoding, "PYTHONUTF8": "0"},
            capture_output=True,
            check=False,
        )
        assert process.returncode == 0, process.stderr
        assert process.stdout.decode(encoding)


def test_control_characters_in_the_name_of_a_file_are_shown_as_escapes(tmp_path, capsys):
    assert main(["show", str(tmp_path / "\x1b[31mred.dynx")]) == 2
    assert "\\x1b[31mred" in capsys.readouterr().err


def test_dynx_assert_forbid_with_an_unknown_rule_is_an_error(saved, capsys):
    """Otherwise an assertion with a typo would always pass."""
    assert main(["assert", saved, "--forbid", "DX999"]) == 2
    assert "no rule has the id DX999" in capsys.readouterr().err


def test_dynx_assert_fails_if_a_compile_failed(tmp_path, capsys):
    failed = Compile(0, "0/0", HERE, "failed", 1.0, reason="Unsupported: print")
    Run((failed,), {}, {"seconds": 1.0}).save(tmp_path / "failed.dynx")
    assert main(["assert", str(tmp_path / "failed.dynx"), "--max-recompiles", "0"]) == 1
    assert "compile 0/0 failed: Unsupported: print" in capsys.readouterr().out


def test_dynx_assert_without_a_limit_is_an_error(saved, capsys):
    assert main(["assert", saved]) == 2
    assert "no limit to check" in capsys.readouterr().err


def test_dynx_assert_fails_if_the_run_compiled_nothing(tmp_path, capsys):
    """A CI job that never reached the model must not pass."""
    Run((), {"torch": "2.13.0"}, {"seconds": 1.0}).save(tmp_path / "empty.dynx")
    assert main(["assert", str(tmp_path / "empty.dynx"), "--max-recompiles", "0"]) == 1
    assert "VACUOUS" in capsys.readouterr().out


def test_dynx_assert_fails_if_all_functions_were_skipped(tmp_path, capsys):
    skipped = Compile(0, "0/0", HERE, "skipped", 0.1, reason="No ops traced for the FX graph.")
    Run((skipped,), {"torch": "2.13.0"}, {"seconds": 1.0}).save(tmp_path / "skipped.dynx")
    assert main(["assert", str(tmp_path / "skipped.dynx"), "--max-recompiles", "0"]) == 1
    printed = capsys.readouterr().out
    assert "VACUOUS: the run compiled nothing, so nothing was checked: " in printed
    assert "train.py:41  main: its first call has no tensor operation to compile" in printed


def test_dynx_assert_fails_if_the_program_was_killed(tmp_path, capsys):
    Run((Compile(0, "0/0", HERE, "compiled", 1.5),), {"torch": "2.13.0"}).save(tmp_path / "cut.dynx")
    assert main(["assert", str(tmp_path / "cut.dynx"), "--max-recompiles", "0"]) == 1
    assert "did not finish" in capsys.readouterr().out


@pytest.mark.parametrize("command", [["show"], ["assert", "--max-recompiles", "0"]], ids=" ".join)
def test_dynx_show_and_assert_report_a_missing_file_and_a_file_that_is_no_run_file(command, tmp_path, capsys):
    missing = str(tmp_path / "missing.dynx")
    assert main([command[0], missing, *command[1:]]) == 2
    written = f"dynx run --out {missing} train.py"
    assert capsys.readouterr().err == f"dynx: there is no run file {missing}\n  to write it: {written}\n"
    other = tmp_path / "model.pt"
    other.write_bytes(b"PK\x03\x04")
    assert main([command[0], str(other), *command[1:]]) == 2
    assert "is not a dynx run file" in capsys.readouterr().err


@pytest.mark.parametrize(
    "command", [["show"], ["assert", "--max-recompiles", "0"], ["trace"], ["diff", ".dynx/last.dynx", "b.dynx"]], ids=" ".join
)
def test_commands_in_a_fresh_folder_say_what_to_run(command, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(command) == 2
    printed = capsys.readouterr()
    assert printed.err == "dynx: there is no run file .dynx/last.dynx\n  to write it: dynx run train.py\n"
    assert printed.out == ""


def test_dynx_show_names_the_run_files_that_are_in_the_folder(saved, tmp_path, capsys, monkeypatch):
    """Ranks write files with their number in the name."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".dynx").mkdir()
    os.rename(saved, ".dynx/last.rank0.dynx")
    assert main(["show"]) == 2
    assert "  there is .dynx/last.rank0.dynx; to write it: dynx run train.py" in capsys.readouterr().err
    assert main(["show", ".dynx"]) == 2
    assert ".dynx is a folder\n  there is .dynx/last.rank0.dynx; name a run file" in capsys.readouterr().err


def test_dynx_show_prints_a_damaged_run_file_with_a_warning(saved, capsys):
    with open(saved, "a") as file:
        file.write("{broken\n")
    assert main(["show", saved]) == 0
    captured = capsys.readouterr()
    assert captured.err.startswith(f"dynx: run file {saved}, line 7: not JSON")
    assert "mark_dynamic(x, 1)" in captured.out


def test_dynx_rule_lists_all_rules_and_explains_one(capsys):
    assert main(["rule"]) == 0
    listed = capsys.readouterr().out
    assert "DX101" in listed
    assert "DX501" in listed
    assert main(["rule", "dx102"]) == 0
    assert "mark_dynamic" in capsys.readouterr().out
    assert main(["rule", "DX999"]) == 2
    assert "no rule has the id DX999" in capsys.readouterr().err


@pytest.mark.slow
def test_dynx_demo_reports_the_mistakes_of_the_demo_program(shell):
    done = shell("-m", "dynx", "demo")
    assert done.returncode == 0
    assert "tokens:" in done.stdout
    for rule in ("DX101", "DX102", "DX202"):
        assert rule in done.stderr
    assert "(tried: recompiles" in " ".join(done.stderr.split())


@pytest.mark.slow
def test_dynx_demo_works_without_transformers_installed(shell):
    done = shell("-c", "import sys; sys.modules['transformers'] = None; from dynx.cli import main; main(['demo'])")
    assert done.returncode == 0
    assert "DX101" in done.stderr
