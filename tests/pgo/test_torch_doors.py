"""torch's own ways to make sizes dynamic and to carry profiles, beside those of dynx: a test for each row of docs/pgo.md."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
import torch

import dynx
from dynx import pgo, symbols

DOCUMENT = Path(__file__).parents[2] / "docs" / "pgo.md"


def scale(x):
    return x * 2


def run(*lengths, prepare=lambda x: x, **options):
    """Compile `scale` and call it; return the number of compilations, and why sizes are dynamic."""
    compiled = torch.compile(scale, backend="eager", **options)
    with dynx.watch() as watch:
        for length in lengths:
            compiled(prepare(torch.ones(length)))
    return len(watch.compiles), [(change.dim, change.profile) for change in watch.dynamic]


@pytest.fixture
def profile():
    with pgo.record(run="monday") as recorder:
        assert run(4, 6) == (2, [("size 0", None)])
    torch._dynamo.reset()
    return recorder.profile()


@pytest.fixture
def caches(monkeypatch, tmp_path):
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "caches"))
    return tmp_path / "caches"


def marked(mark):
    def prepare(x):
        mark(x, 0)
        return x

    return prepare


class TestMarks:
    @pytest.mark.parametrize(
        "mark", [torch._dynamo.mark_dynamic, torch._dynamo.maybe_mark_dynamic], ids=lambda mark: mark.__name__
    )
    def test_mark_dynamic(self, profile, mark):
        with profile.apply():
            assert run(4, 6, prepare=marked(mark)) == (1, [("size 0", "a profile")])

    def test_mark_unbacked(self, profile):
        with profile.apply():
            assert run(4, 6, prepare=marked(torch._dynamo.decorators.mark_unbacked)) == (1, [])

    def test_mark_static(self, profile):
        with profile.apply():
            assert run(4, 6, prepare=marked(torch._dynamo.mark_static)) == (2, [])

    def test_dynamic_false(self, profile):
        with profile.apply():
            assert run(4, 6, dynamic=False) == (2, [])

    def test_dynamic_true(self, profile):
        with profile.apply():
            assert run(4, 6, dynamic=True)[0] == 1

    def test_automatic_dynamic_shapes_off(self, profile):
        with profile.apply(), torch._dynamo.config.patch(automatic_dynamic_shapes=False):
            assert run(4, 6) == (2, [])


class TestSources:
    def test_dynamic_sources(self, profile):
        assert profile.to_dynamic_sources() == "L['x']"
        with torch.compiler.config.patch(dynamic_sources=profile.to_dynamic_sources()):
            assert run(4, 6)[0] == 1

    def test_dynamic_sources_with_dims(self):
        def calls():
            compiled = torch.compile(scale, backend="eager")
            with dynx.watch() as watch:
                for rows in (4, 6):
                    compiled(torch.ones(rows, 3))
            return watch

        with pgo.record() as recorder:
            calls()
        sources = recorder.profile().to_dynamic_sources(dims=True)
        assert sources == "L['x']:0"
        if ":N" not in (torch.compiler.config.__doc__ or "") + Path(torch.compiler.config.__file__).read_text():
            pytest.skip("torch before 2.13 has no dims in dynamic_sources")
        torch._dynamo.reset()
        with torch.compiler.config.patch(dynamic_sources=sources), symbols_of_graphs() as names:
            assert len(calls().compiles) == 1
        assert names == ["L['x'].size()[0]"]

    def test_static_sources(self, profile):
        if not hasattr(torch.compiler.config, "static_sources"):
            pytest.skip("torch before 2.15 has no static_sources")
        with profile.apply(), torch.compiler.config.patch(static_sources=profile.to_dynamic_sources()):
            assert run(4, 6) == (2, [])


def symbols_of_graphs():
    """Collect the sources of the symbols of each graph."""
    from contextlib import contextmanager

    from dynx._torch.shapes.size_updates import SizeListener

    @contextmanager
    def collecting():
        names = []
        note = lambda graph: names.extend(symbol.sources[0] for symbol in graph.symbols)  # noqa: E731
        with SizeListener(lambda update: None, note, lambda hook, error: names.append(error)):
            yield names

    return collecting()


class TestFilesOfTorch:
    def test_the_job_id(self, caches):
        with torch.compiler.config.patch(job_id="job"):
            assert run(4, 6) == (2, [("size 0", None)])
            torch._dynamo.reset()  # the next process loads the file
            assert run(4, 6) == (1, [("size 0", "torch's profile")])

    def test_the_job_id_beside_a_profile(self, profile, caches):
        with torch.compiler.config.patch(job_id="job"):
            with profile.apply():
                assert run(4, 6) == (1, [("size 0", "a profile")])
            torch._dynamo.reset()
            assert run(4, 6) == (1, [("size 0", "torch's profile")])  # which learned it from the one of dynx

    def test_the_job_id_keeps_a_size_of_no_use(self, caches):
        """Beside a profile, a size that torch keeps as dynamic is static where the profile has a graph in which it was."""

        def total(x, y):
            out = y
            for row in range(x.size(0)):
                out = out + x[row]
            return out

        def run(*sizes):
            compiled = torch.compile(total, backend="eager")
            with dynx.watch() as watch, pgo.record() as recorder:
                for rows, length in sizes:
                    compiled(torch.ones(rows, 1), torch.ones(length))
            torch._dynamo.reset()
            return [finding for finding in watch.findings if finding.rule == "DX405"], recorder.profile()

        with torch.compiler.config.patch(job_id="of no use"):
            _, pruned = run((3, 4), (3, 6), (5, 9))
            with pruned.apply():
                assert run((3, 8))[0] == []
            (finding,), _ = run((3, 8))
        assert finding.title == "x.size()[0] is dynamic in torch's profile, and this line needs its value"
        assert "TORCH_COMPILE_JOB_ID" in finding.advice

    def test_the_file_of_a_job_is_converted(self, caches):
        with torch.compiler.config.patch(job_id="job"):
            run(4, 6)
        (file,) = (caches / "dynamo").glob("code_state_job*.pkl")
        torch._dynamo.reset()
        with pgo.Profile.from_pickle(file).apply():
            compiles, ((dim, name),) = run(4, 6)
        assert (compiles, dim) == (1, "size 0")
        assert name.endswith(file.name)

    def test_the_extra_keys(self, profile, caches, monkeypatch):
        class Remote(dict):  # torch uses these keys for its remote cache only
            put = dict.__setitem__

        remote = Remote()
        monkeypatch.setattr(torch._dynamo.pgo, "get_remote_cache", lambda: remote)
        with torch.compiler.config.patch(job_id="one", pgo_extra_write_key="shared"), profile.apply():
            run(4, 6)
        assert [key for key in remote if key.startswith("shared")]
        shutil.rmtree(caches)
        torch._dynamo.reset()
        with torch.compiler.config.patch(job_id="two", pgo_extra_read_key="shared"):
            assert run(4, 6) == (1, [])  # torch keeps no copy of what it read with this key

    def test_cache_artifacts(self, profile, caches):
        # a key of its own: torch lists an artifact only when it is first written, and loads the last one listed for a key
        with torch.compiler.config.patch(job_id="artifacts"):
            with profile.apply():
                run(4, 6)
            saved, info = torch.compiler.save_cache_artifacts()
            assert info.pgo_artifacts
            shutil.rmtree(caches)
            torch._dynamo.reset()
            torch.compiler.load_cache_artifacts(saved)
            assert run(4, 6) == (1, [("size 0", "torch's profile")])


class TestExport:
    def test_a_profile_does_not_change_an_exported_program(self, profile):
        class Model(torch.nn.Module):
            def forward(self, x):
                return scale(x)

        for strict in (False, True):
            with profile.apply():
                program = torch.export.export(Model(), (torch.ones(4),), strict=strict)
            (shape,) = [node.meta["val"].shape for node in program.graph.nodes if node.op == "placeholder"]
            assert tuple(shape) == (4,)

    def test_names_by_source(self, tmp_path):
        class Model(torch.nn.Module):
            def forward(self, x):
                return scale(x)

        with symbols.install():
            program = torch.export.export(Model(), (torch.ones(4),), dynamic_shapes={"x": {0: torch.export.Dim("length")}})
            torch.export.save(program, tmp_path / "model.pt2")
        assert torch.export.load(tmp_path / "model.pt2").module()(torch.ones(9)).shape == (9,)


def test_each_row_of_the_table_names_a_test_here():
    table = DOCUMENT.read_text().partition("## Beside torch's own ways\n")[2].partition("\n## ")[0]
    named = re.findall(r"`(\w+\.test_\w+)` \|$", table, re.M)
    here = {
        f"{cls.__name__}.{name}"
        for cls in (TestMarks, TestSources, TestFilesOfTorch, TestExport)
        for name in vars(cls)
        if name.startswith("test_")
    }
    assert len(named) == table.count("\n| ") - 1
    assert set(named) == here
