"""`pgo.warm_start`: one line for a program that runs every day, on one or several ranks, whose sources change."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from dynx import pgo, symbols
from dynx.errors import BadProfile, UsageError
from dynx.pgo import Profile
from dynx.records.profile import DYNAMIC
from dynx.symbols._install import active

ones = torch.ones

# Graphs are products of matrices, which inductor compiles without C++. `scaled` has a closure, `features` a loop over a size,
# and sizes of `mask` and `emb` want the number 31.
TRAIN = """
import os, sys, json
from dynx import pgo

pgo.warm_start(sys.argv[1])

import torch
from torch._dynamo.utils import counters
from model import features, scaled

rank = int(os.environ.get("RANK", "0"))
torch.compile(lambda x: x @ x)(torch.ones(2, 2))  # starts inductor
counters.clear()
compiled, head = torch.compile(features), torch.compile(scaled(lambda x: x @ x.t()))
for rows, length in ((3 + rank, 6 + rank), (4 + rank, 7), (5, 9 + rank)):
    compiled(torch.ones(rows, 4, 4), torch.ones(length, 3), torch.ones(length, 4))
    head(torch.ones(length, 2))
fx, aot = counters["inductor"], counters["aot_autograd"]
print(json.dumps([fx["fxgraph_cache_miss"], aot["autograd_cache_miss"], counters["stats"]["unique_graphs"]]))
"""
MODEL = """
def features(mask, emb, w):
    for row in range(mask.shape[0]):
        w = w @ mask[row]
    return w, emb.t() @ emb


def scaled(by):
    def apply(x):
        return by(x)

    return apply


def unused():
    return 1
"""


class Job:
    """A job that restarts every day: the caches and the profile stay, the rest changes."""

    def __init__(self, folder: Path) -> None:
        self.shared, self.day = folder, 0
        (folder / "shared").mkdir()

    def run(self, *, model=MODEL, train="train.py", checkout="job", ranks=1):
        """Return for each rank the misses in both caches, and the number of compilations."""
        self.day += 1
        folder = self.shared / checkout
        folder.mkdir(exist_ok=True)
        (folder / train).write_text(TRAIN)
        (folder / "model.py").write_text(model)
        processes = [self._start(folder, train, rank) for rank in range(ranks)]
        found = []
        for process in processes:
            out, errors = process.communicate(timeout=300)
            assert (process.returncode, errors) == (0, ""), errors
            found.append(json.loads(out))
        return found

    def _start(self, folder, train, rank):
        variables = {"TORCHINDUCTOR_CACHE_DIR": str(self.shared / "shared" / "caches"), "RANK": str(rank)}
        variables |= {"PYTHONHASHSEED": str(self.day), "PYTHONDONTWRITEBYTECODE": "1"}
        command = [sys.executable, train, str(self.profile)]
        return subprocess.Popen(
            command, env=os.environ | variables, cwd=folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )

    @property
    def profile(self):
        return self.shared / "shared" / "profile.json"


@pytest.mark.slow
class TestAJobThatRestartsEveryDay:
    def test_each_day_after_the_first_misses_nothing(self, tmp_path):
        job = Job(tmp_path)
        first = job.run()
        assert first[0][:2] == [5, 5]
        assert job.run() == [[0, 0, first[0][2] - 1]]  # another hash seed; `scaled` has its dynamic graph from the start
        for change in ({"checkout": "moved"}, {"train": "renamed.py"}, {"model": MODEL.replace("return 1", "return 2")}, {}):
            assert job.run(**change)[0][:2] == [0, 0], change
        assert sorted(os.listdir(tmp_path / "shared")) == ["caches", "profile.json"]

    def test_a_function_that_was_edited_keeps_its_sizes(self, tmp_path):
        """Its graphs are new, and are compiled with the sizes dynamic from the start; other functions are found again."""
        job = Job(tmp_path)
        job.run()
        edited = MODEL.replace("return by(x)", "return by(x), x @ x.t()")
        misses, _, compilations = job.run(model=edited)[0]
        assert (misses, compilations) == (1, 4)
        assert job.run(model=edited)[0][:2] == [0, 0]
        frames = [frame for frame in Profile.load(job.profile).frames if frame.qualname == "features"]
        assert len(frames) == 1  # not also that of the file before

    def test_four_ranks_share_a_profile(self, tmp_path):
        job = Job(tmp_path)
        job.run(ranks=4)
        assert [misses for *misses, _ in job.run(ranks=4)] == [[0, 0]] * 4
        assert sorted(os.listdir(tmp_path / "shared")) == ["caches", "profile.json"]


def scale(x):
    return x * 2


def calls(*lengths):
    graphs = []

    def backend(graph_module, example_inputs):
        graphs.append([node.name for node in graph_module.graph.nodes if node.op == "placeholder"])
        return graph_module

    compiled = torch.compile(scale, backend=backend)
    for length in lengths:
        compiled(ones(length))
    return graphs


class TestTheHandle:
    def test_it_installs_names_and_removes_them(self, tmp_path):
        before = active()
        with pgo.warm_start(tmp_path / "profile.json"):
            assert active().name == "blake63"
            assert len(calls(4, 6)) == 2
        assert active() is before
        assert Profile.load(tmp_path / "profile.json").frames[0].sources["L['x']"].size == (DYNAMIC,)

    def test_a_scheme_of_the_user_stays(self, tmp_path):
        with symbols.install("blake31") as own:
            with pgo.warm_start(tmp_path / "profile.json"):
                assert active() is own
            assert active() is own

    def test_remove_saves_once(self, tmp_path):
        handle = pgo.warm_start(str(tmp_path / "profile.json"))
        calls(4, 6)
        handle.remove()
        assert handle.saved == tmp_path / "profile.json"
        (tmp_path / "profile.json").unlink()
        handle.remove()
        assert not (tmp_path / "profile.json").exists()

    def test_an_error_in_the_block_saves_what_was_learned(self, tmp_path):
        def program():
            with pgo.warm_start(tmp_path / "profile.json"):
                calls(4, 6)
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            program()
        assert Profile.load(tmp_path / "profile.json").frames

    def test_a_file_that_cannot_be_written_does_not_fail_the_program(self, tmp_path, capsys):
        with pgo.warm_start(tmp_path / "profile.json"):
            calls(4, 6)
            (tmp_path / "profile.json").mkdir()
        assert "dynx: the profile was not saved: " in capsys.readouterr().err


@pytest.fixture
def names_before():
    """The scheme before the test: none, or that of `make wide-ids`."""
    return active()


class TestWhatItRefuses:
    def test_a_mistyped_folder(self, tmp_path, names_before):
        with pytest.raises(FileNotFoundError, match="chekpoints"):
            pgo.warm_start(tmp_path / "chekpoints" / "profile.json")
        assert active() is names_before

    def test_a_file_of_something_else(self, tmp_path, names_before):
        (tmp_path / "profile.json").write_text("[]")
        with pytest.raises(BadProfile):
            pgo.warm_start(tmp_path / "profile.json")
        assert active() is names_before
        assert (tmp_path / "profile.json").read_text() == "[]"

    def test_a_function_that_was_compiled_before(self, tmp_path, names_before):
        calls(4)
        with pytest.raises(UsageError, match="already compiled functions"):
            pgo.warm_start(tmp_path / "profile.json")
        assert active() is names_before
