"""`dynx pgo` and `dynx run --pgo`."""

from __future__ import annotations

import json
import pickle
from collections import defaultdict

import pytest
from support.profiles import profile_of
from torch._dynamo import pgo as torch_pgo

from dynx.cli import main
from dynx.pgo import Profile
from dynx.records.profile import DYNAMIC, Seen, SourceProfile

PROGRAM = """
    import torch

    def model(x, k, w):
        for row in range(w.size(0)):
            x = x + w[row].sum()
        return x * k

    graphs = []

    def backend(graph_module, example_inputs):
        graphs.append(graph_module)
        return graph_module

    compiled = torch.compile(model, backend=backend)
    for size, k, rows in ((4, 3, 2), (6, 5, 2), (7, 8, 2)):
        compiled(torch.ones(2, size), k, torch.ones(rows))
    print("graphs:", len(graphs))
"""


@pytest.fixture
def saved(tmp_path):
    """Save a profile in which size 1 of `x` is dynamic, after 4 and 6 in run A."""
    profile = profile_of(SourceProfile(DYNAMIC, (2, DYNAMIC), (1, 1), (Seen(1, 4, "A", "0/0"), Seen(1, 6, "A", "0/1"))))
    profile.save(tmp_path / "profile.json")
    return tmp_path / "profile.json"


class TestActions:
    def test_dump_shows_sizes_and_the_values_that_they_had(self, saved, capsys):
        assert main(["pgo", "dump", str(saved)]) == 0
        shown = capsys.readouterr().out
        assert "1 function  1 run, torch 2.13.0" in shown
        assert "/a/model.py:3  f" in shown
        assert "x      [2, dynamic]  size(1): 4 (0/0), 6 (0/1) in run A" in shown

    def test_dump_json_is_the_file(self, saved, capsys):
        assert main(["pgo", "dump", "--json", str(saved)]) == 0
        assert capsys.readouterr().out == saved.read_text()

    def test_dump_sources(self, saved, capsys):
        assert main(["pgo", "dump", "--sources", str(saved)]) == 0
        assert capsys.readouterr().out == "L['x']\n"
        assert main(["pgo", "dump", "--dims", str(saved)]) == 0
        assert capsys.readouterr().out == "L['x']:1\n"

    def test_dump_reads_a_profile_of_torch(self, tmp_path, capsys):
        state = defaultdict(torch_pgo.CodeState)
        entry = torch_pgo.FrameStateSizeEntry(torch_pgo.auto_dynamic, (3,), (1,))
        state[torch_pgo.CodeId("/a/model.py", 3, "f", "1")].automatic_dynamic["L['x']"] = entry
        (tmp_path / "code_state.pkl").write_bytes(pickle.dumps(state))
        assert main(["pgo", "dump", "--json", str(tmp_path / "code_state.pkl")]) == 0
        assert json.loads(capsys.readouterr().out)["frames"][0]["sources"]["L['x']"]["size"] == [3]

    def test_diff_exits_with_1_if_sizes_differ(self, saved, tmp_path, capsys):
        other = tmp_path / "other.json"
        Profile.load(saved).prune(drop=".*").save(other)
        assert main(["pgo", "diff", str(saved), str(other)]) == 1
        assert "x.size(1)  dynamic  not known" in capsys.readouterr().out
        assert main(["pgo", "diff", str(saved), str(saved)]) == 0
        assert "no difference" in capsys.readouterr().out

    def test_merge_writes_what_both_know(self, saved, tmp_path):
        other = profile_of(SourceProfile(DYNAMIC, (3, 4), (1, 1)))
        other.save(tmp_path / "other.json")
        assert main(["pgo", "merge", str(saved), str(tmp_path / "other.json"), "--out", str(tmp_path / "both.json")]) == 0
        assert Profile.load(tmp_path / "both.json") == Profile.load(saved).merge(other)

    def test_prune_shows_and_writes_what_remains(self, saved, tmp_path, capsys):
        assert main(["pgo", "prune", str(saved), "--drop", "L..x..", "--out", str(tmp_path / "less.json")]) == 0
        assert "x.size(1)  dynamic  not known" in capsys.readouterr().out
        assert Profile.load(tmp_path / "less.json").frames[0].sources["L['x']"].size == (2, None)

    def test_explain_names_both_values(self, saved, capsys):
        assert main(["pgo", "explain", str(saved), "x", "--dim", "1"]) == 0
        assert "x.size(1)  4 (0/0), 6 (0/1) in run A" in capsys.readouterr().out
        assert main(["pgo", "explain", str(saved), "y"]) == 0
        assert "0 dynamic sizes and numbers" in capsys.readouterr().out

    def test_verify_exits_with_1_if_a_function_is_gone(self, saved, capsys):
        assert main(["pgo", "verify", str(saved)]) == 1
        assert "1 gone" in capsys.readouterr().out

    @pytest.mark.parametrize("action", ["dump", "explain", "verify"])
    def test_a_file_of_something_else(self, action, tmp_path, capsys):
        (tmp_path / "run.json").write_text("{}")
        assert main(["pgo", action, str(tmp_path / "run.json")]) == 2
        assert "run.json is not a profile" in capsys.readouterr().err

    def test_a_missing_file(self, tmp_path, capsys):
        assert main(["pgo", "dump", str(tmp_path / "none.json")]) == 2
        assert "No such file" in capsys.readouterr().err


class TestRun:
    @pytest.mark.slow
    def test_the_second_run_compiles_once(self, program, shell, tmp_path):
        path = program(PROGRAM)
        runs = [shell("-m", "dynx", "run", "--pgo", "profile.json", path) for _ in range(2)]
        assert [run.stdout for run in runs] == ["graphs: 2\n", "graphs: 1\n"]
        assert all("profile of 1 function saved: profile.json" in run.stderr for run in runs)
        (frame,) = Profile.load(tmp_path / "profile.json").frames
        assert (frame.sources["L['x']"].size, frame.sources["L['k']"].scalar) == ((2, DYNAMIC), DYNAMIC)

    @pytest.mark.slow
    def test_apply_runs_a_program_with_a_profile_and_its_own_arguments(self, program, shell):
        path = program(PROGRAM + "    import sys; print(sys.argv[1:])\n")
        shell("-m", "dynx", "run", "--pgo", "profile.json", path)
        applied = shell("-m", "dynx", "pgo", "apply", "profile.json", path, "--out", "x")
        assert (applied.stdout, applied.stderr) == ("graphs: 1\n['--out', 'x']\n", "")

    @pytest.mark.slow
    def test_apply_runs_code(self, program, shell):
        shell("-m", "dynx", "run", "--pgo", "profile.json", program(PROGRAM))
        applied = shell("-m", "dynx", "pgo", "apply", "profile.json", "-c", "import sys; print(sys.argv)", "-x")
        assert (applied.returncode, applied.stdout) == (0, "['-c', '-x']\n")

    @pytest.mark.slow
    def test_a_program_that_fails_saves_what_it_learned(self, program, shell, tmp_path):
        path = program(PROGRAM + "    raise SystemExit(3)\n")
        assert shell("-m", "dynx", "run", "--pgo", "profile.json", path).returncode == 3
        assert len(Profile.load(tmp_path / "profile.json").frames) == 1

    def test_a_file_of_something_else_ends_before_the_program_begins(self, program, shell, tmp_path):
        (tmp_path / "profile.json").write_text("[]")
        run = shell("-m", "dynx", "run", "--pgo", "profile.json", program(PROGRAM))
        assert (run.returncode, run.stdout) == (2, "")
        assert "profile.json is not a profile" in run.stderr
        assert (tmp_path / "profile.json").read_text() == "[]"

    def test_a_mistyped_folder_ends_before_the_program_begins(self, program, shell, tmp_path):
        """Hours later the profile could not be saved, or would be in a folder that nobody looks in."""
        run = shell("-m", "dynx", "run", "--pgo", "chekpoints/profile.json", program(PROGRAM))
        assert (run.returncode, run.stdout) == (2, "")
        assert run.stderr.startswith("dynx: the folder for the profile does not exist: create it, or correct the path: ")
        assert not (tmp_path / "chekpoints").exists()

    @pytest.mark.slow
    def test_a_file_that_cannot_be_written_does_not_fail_the_program(self, program, shell, tmp_path):
        path = program(PROGRAM + "    import os; os.mkdir('profile.json')\n")
        run = shell("-m", "dynx", "run", "--pgo", "profile.json", path)
        assert (run.returncode, run.stdout) == (0, "graphs: 2\n")
        assert "the profile was not saved" in run.stderr
