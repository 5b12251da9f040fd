"""`Profile.apply`: the next process begins with the sizes that are dynamic in the end."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import textwrap
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from support.profiles import profile_of
from torch._dynamo import pgo as torch_pgo

from dynx._torch import hooks
from dynx.errors import DynxWarning, UsageError
from dynx.pgo import Profile, record, stable_closure_hash
from dynx.records import ProfileMatches
from dynx.records.profile import DYNAMIC, SourceProfile

MODEL = """
def plain(x, k):
    return x * k

def broken(x):
    y = x + 1
    print(end="")
    return y * 2

def make():
    def helper(t):
        return t + 1

    def inner(x):
        return helper(x) * 2
    return inner

class Model:
    def forward(self, x):
        return x.sin()
"""

has_closure_hash = "closure_hash" in torch_pgo.CodeId.__dataclass_fields__


@pytest.fixture
def load(tmp_path):
    """Write the source of a module and import it; called again, it edits the file."""
    numbers = iter(range(100))

    def load(text=MODEL, folder="."):
        path = tmp_path / folder / "model.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        torch_pgo._hash_containing_file.cache_clear()  # torch hashes a file once in a process
        spec = importlib.util.spec_from_file_location(f"model_{next(numbers)}", path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    return load


def run(count, *functions):
    """Call compiled functions with three sizes, and return how many graphs were compiled."""
    before = count.count
    for function in functions:
        compiled = torch.compile(function, backend=count)
        arguments = (2.5,) if function.__name__ == "plain" else ()
        for size in (4, 6, 7):
            compiled(torch.ones(2, size), *arguments)
    return count.count - before


class TestWarm:
    def test_each_graph_is_compiled_once(self, load, count_compiles):
        module = load()
        functions = module.plain, module.broken, module.Model().forward
        assert run(count_compiles, *functions) == 8
        profile = Profile.capture()
        torch._dynamo.reset()
        with profile.apply():
            assert run(count_compiles, *functions) == 4

    def test_a_profile_outlives_a_reset(self, load, count_compiles):
        module = load()
        run(count_compiles, module.plain)
        profile = Profile.capture()
        torch._dynamo.reset()
        with profile.apply():
            assert run(count_compiles, module.plain) == 1
            torch._dynamo.reset()
            assert run(count_compiles, module.plain) == 1
        torch._dynamo.reset()
        assert run(count_compiles, module.plain) == 2

    def test_results_are_those_of_eager(self, load):
        module = load()
        for size in (4, 6):
            torch.compile(module.plain, backend="eager")(torch.ones(2, size), 2.0)
        profile = Profile.capture()
        torch._dynamo.reset()
        with profile.apply():
            for size in (0, 1, 4, 9):
                x = torch.rand(2, size)
                assert torch.equal(torch.compile(module.plain, backend="eager")(x, 2.0), module.plain(x, 2.0))

    @pytest.mark.skipif(
        not hasattr(torch._dynamo.config, "automatic_dynamic_exclusion_guard"), reason="torch before 2.13 excludes no values"
    )
    def test_values_that_had_a_graph_of_their_own_are_not_excluded(self, load, count_compiles):
        module = load()
        profiles = []
        for size in (4, 6):
            torch.compile(module.plain, backend="eager")(torch.ones(2, size), 2.5)
            profiles.append(Profile.capture())
            torch._dynamo.reset()
        exclude = torch._dynamo.config.patch(automatic_dynamic_exclusion_guard=True)
        with exclude, profiles[0].apply(), profiles[1].apply():
            compiled = torch.compile(module.plain, backend=count_compiles)
            before = count_compiles.count
            for size in (9, 4, 6, 7):
                compiled(torch.ones(2, size), 2.5)
            assert count_compiles.count - before == 1

    def test_the_path_is_not_part_of_a_functions_identity(self, load, count_compiles):
        run(count_compiles, load().plain)
        profile = Profile.capture()
        torch._dynamo.reset()
        with profile.apply():
            assert run(count_compiles, load(folder="elsewhere").plain) == 1

    def test_two_profiles_are_joined(self, load, count_compiles):
        module = load()
        run(count_compiles, module.plain)
        first = Profile.capture()
        torch._dynamo.reset()
        run(count_compiles, module.broken)
        second = Profile.capture()
        torch._dynamo.reset()
        with first.apply(), second.apply():
            assert run(count_compiles, module.plain, module.broken) == 3

    def test_a_profile_from_a_second_thread(self, load, count_compiles):
        import threading

        module = load()
        run(count_compiles, module.plain)
        profile = Profile.capture()
        torch._dynamo.reset()
        with profile.apply():
            graphs = []
            thread = threading.Thread(target=lambda: graphs.append(run(count_compiles, module.plain)))
            thread.start()
            thread.join()
        assert graphs == [1]


class TestClosures:
    @pytest.mark.slow
    def test_a_closure_is_recognized_in_every_process(self, tmp_path):
        (tmp_path / "model.py").write_text(MODEL)
        program = textwrap.dedent(
            """
            import sys, torch
            from dynx import pgo
            from model import make
            graphs = []
            def backend(graph_module, example_inputs):
                graphs.append(graph_module)
                return graph_module
            profile = pgo.Profile.load("p.json") if len(sys.argv) > 1 else pgo.Profile()
            with pgo.stable_closure_hash(), profile.apply():
                compiled = torch.compile(make(), backend=backend)
                for size in (4, 6, 7):
                    compiled(torch.ones(2, size))
                profile.merge(pgo.Profile.capture()).save("p.json")
            print(len(graphs))
            """
        )
        (tmp_path / "program.py").write_text(program)
        graphs, lengths = [], []
        for seed in ("1", "2", "3"):
            env = os.environ | {
                "PYTHONHASHSEED": seed,
                "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[2]), *sys.path]),
            }
            arguments = [sys.executable, "program.py", *(["warm"] if graphs else [])]
            done = subprocess.run(arguments, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr
            graphs.append(int(done.stdout))
            lengths.append((tmp_path / "p.json").stat().st_size)
        assert graphs == [2, 1, 1]
        assert lengths[0] == lengths[1] == lengths[2]

    @pytest.mark.skipif(not has_closure_hash, reason="torch before 2.13 leaves closures out")
    def test_torch_hashes_a_closure_for_one_process(self, load, count_compiles):
        run(count_compiles, load().make())
        (frame,) = Profile.capture().frames
        assert not frame.is_portable

    @pytest.mark.skipif(not has_closure_hash, reason="torch before 2.13 leaves closures out")
    def test_functions_of_the_closure_are_told_apart(self, load):
        module = load()
        other = load(MODEL.replace("t + 1", "t + 2"))
        with stable_closure_hash():
            inner = module.make(), module.make(), other.make()
            hashes = [torch_pgo.CodeId.make(one.__code__, one.__closure__).closure_hash for one in inner]
        assert hashes[0] == hashes[1] != hashes[2]
        assert profile_of(SourceProfile(), closure=hashes[0]).frames[0].is_portable

    def test_removing_the_hash_restores_the_class_exactly(self):
        before = vars(torch_pgo.CodeId)["make"]
        with stable_closure_hash():
            assert (vars(torch_pgo.CodeId)["make"] is not before) == has_closure_hash
        assert vars(torch_pgo.CodeId)["make"] is before


class TestSourceThatChanged:
    @pytest.fixture
    def profile(self, load, count_compiles):
        module = load()
        run(count_compiles, module.plain, module.broken)
        profile = Profile.capture()
        torch._dynamo.reset()
        return profile

    def states(self, profile):
        return {match.frame.name.split("_at_")[0]: match.state for match in profile.verify()}

    def test_the_same_file(self, profile):
        assert set(self.states(profile).values()) == {"same"}

    def test_lines_inserted_above(self, profile, load, count_compiles):
        module = load("# a comment\n\n" + MODEL)
        assert set(self.states(profile).values()) == {"moved"}
        with pytest.warns(DynxWarning, match=r"3 moved.*model.py has changed"), profile.apply() as handle:
            assert run(count_compiles, module.plain, module.broken) == 3
        assert [match.line for match in handle.matches] == [4, 7, 9]

    def test_namesakes_with_the_same_text(self, load, count_compiles):
        forward = "    def forward(self, x):\n        return x * 2\n"
        text = f"class A:\n{forward}\nclass B:\n{forward}"
        run(count_compiles, load(text).B().forward)
        profile = Profile.capture()
        load(f"# a comment\n{text}")
        assert [(match.state, match.line) for match in profile.verify()] == [("moved", 7)]

    @pytest.mark.parametrize("before", ["\ufeff", "# -*- coding: utf-8 -*-\n", "\x0c\n"])
    def test_files_that_editors_write(self, load, count_compiles, before):
        run(count_compiles, load(before + MODEL).plain)
        profile = Profile.capture()
        load(f"{before}{MODEL}# a comment\n")
        assert self.states(profile) == {"plain": "moved"}
        load((before + MODEL).replace("x * k", "x * k + 1"))
        assert self.states(profile) == {"plain": "changed"}

    def test_code_without_a_file(self, count_compiles):
        names = {}
        exec("def plain(x, k):\n    return x * k\n", names)
        run(count_compiles, names["plain"])
        profile = Profile.capture()
        assert list(self.states(profile).values()) == ["same"]  # torch 2.11 names it after a wrapper of torch
        torch._dynamo.reset()
        with profile.apply(strict=True):
            assert run(count_compiles, names["plain"]) == 1

    def test_a_function_that_was_edited(self, profile, load, count_compiles):
        module = load(MODEL.replace("x * k", "k * x"))
        assert self.states(profile)["plain"] == "changed"
        with pytest.warns(DynxWarning, match="plain .changed"), profile.apply():
            assert run(count_compiles, module.plain) == 1

    def test_a_function_with_a_graph_break_that_was_edited(self, profile, load):
        load(MODEL.replace("x + 1", "x + 2"))
        states = self.states(profile)
        assert states["broken"] == "changed"
        assert states["torch_dynamo_resume_in_broken"] == "gone"

    def test_a_function_that_is_gone(self, profile, load, count_compiles):
        module = load(MODEL.replace("def plain", "def other"))
        assert self.states(profile)["plain"] == "gone"
        with pytest.warns(DynxWarning, match="no such function"), profile.apply():
            assert run(count_compiles, module.broken) == 2

    def test_a_file_that_cannot_be_parsed(self, profile, tmp_path):
        (tmp_path / "model.py").write_text("def plain(:\n")
        assert set(self.states(profile).values()) == {"gone"}

    def test_a_file_that_is_gone(self, profile, tmp_path):
        (tmp_path / "model.py").unlink()
        assert {match.why for match in profile.verify()} == {"no such file"}

    def test_a_checkout_at_another_path(self, profile, tmp_path, monkeypatch):
        (tmp_path / "new" / "src").mkdir(parents=True)
        (tmp_path / "model.py").rename(tmp_path / "new" / "src" / "model.py")
        monkeypatch.chdir(tmp_path / "new" / "src")
        assert set(self.states(profile).values()) == {"same"}

    @pytest.mark.usefixtures("torch_names")
    def test_strict_raises_and_applies_nothing(self, profile, load):
        load("# a comment\n" + MODEL)
        with pytest.raises(UsageError, match="3 moved"):
            profile.apply(strict=True)
        assert hooks.installed() == ()


class TestHandle:
    @pytest.mark.usefixtures("torch_names")
    def test_after_a_compilation_it_is_too_late(self, load, count_compiles):
        run(count_compiles, load().plain)
        with pytest.raises(UsageError, match=r"already(.|\n)*torch._dynamo.reset"):
            Profile.capture().apply()
        assert hooks.installed() == ()

    def test_remove_restores_torch_exactly(self):
        before = torch_pgo.get_code_state
        with pytest.warns(DynxWarning, match="no such file"):
            handle = profile_of(SourceProfile(DYNAMIC, (DYNAMIC,), (1,))).apply()
        assert repr(handle) == "<profile, applied: 1 gone>"
        handle.remove()
        handle.remove()
        assert torch_pgo.get_code_state is before
        assert "removed" in repr(handle)

    def test_torch_stores_what_was_applied_with_its_own(self, load, count_compiles, tmp_path, monkeypatch):
        monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
        module = load()
        run(count_compiles, module.plain)
        profile = Profile.capture()
        torch._dynamo.reset()
        with torch.compiler.config.patch(job_id="job"):
            with profile.apply():
                run(count_compiles, module.broken)
            path = torch_pgo.code_state_path(torch_pgo.get_cache_key())
            names = {frame.name for frame in Profile.from_pickle(path).frames}
        assert {"plain", "broken"} <= names

    def test_a_broken_profile_of_values_compiles_as_often_as_none(self, load, count_compiles):
        """A profile of another program that happens to name the same function."""
        module = load()
        run(count_compiles, module.plain)
        (frame,) = Profile.capture().frames
        torch._dynamo.reset()
        nonsense = {"L['x']": SourceProfile(7, DYNAMIC, (1, 2, 3)), "L['k']": SourceProfile(None, (1, 2), None)}
        with Profile((replace(frame, sources=nonsense),)).apply():
            assert run(count_compiles, module.plain) <= 2


def test_an_observer_and_a_profile_in_one_process(load, count_compiles):
    module = load()
    with record(run="A") as recorder:
        run(count_compiles, module.plain)
    torch._dynamo.reset()
    with recorder.profile().apply(), record(run="B") as second:
        run(count_compiles, module.plain)
    values = {size.dim: [(seen.value, seen.run) for seen in size.seen] for size in second.explain("x")}
    assert values[1] == [(4, "A"), (6, "A")]


def test_matches_of_a_profile_without_functions_say_so():
    assert "the profile has no functions" in ProfileMatches(())._repr_html_()
    assert "of the functions" not in ProfileMatches(())._repr_html_()
