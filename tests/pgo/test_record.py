"""`pgo.record`: which values made a size dynamic, and which dynamic sizes a graph specialized anyway."""

from __future__ import annotations

import pytest
import torch
from torch._dynamo.utils import counters

from dynx._torch import hooks
from dynx.pgo import Profile, record
from dynx.pgo._merge import join_frames
from dynx.records.profile import DYNAMIC, FrameProfile, Seen


def scaled(x, k):
    return x * k


def call(function, *calls, backend="eager"):
    compiled = torch.compile(function, backend=backend)
    for arguments in calls:
        compiled(*arguments)


class TestExplain:
    def test_both_values_their_compilations_and_the_line(self):
        with record(run="first") as recorder:
            call(scaled, (torch.ones(2, 4), 3), (torch.ones(2, 6), 5))
        size, number = sorted(recorder.explain(), key=lambda found: found.source, reverse=True)
        assert (size.source, size.dim, size.seen) == ("L['x']", 1, (Seen(1, 4, "first", "0/0"), Seen(1, 6, "first", "0/1")))
        assert (number.source, number.dim, [seen.value for seen in number.seen]) == ("L['k']", None, [3, 5])
        assert {(found.location.line, found.location.function) for found in (size, number)} == {
            (scaled.__code__.co_firstlineno + 1, "scaled")
        }

    def test_one_source_or_dim(self):
        with record() as recorder:
            call(scaled, (torch.ones(2, 4), 3.0), (torch.ones(3, 6), 3.0))
        assert [size.dim for size in recorder.explain("x")] == [0, 1]
        assert [size.dim for size in recorder.explain("L['x']", dim=1)] == [1]
        assert not recorder.explain("y")

    def test_modules_have_the_names_of_their_source(self):
        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.inner = torch.nn.Linear(3, 3)

            def forward(self, batch):
                return self.inner(batch["x"])

        with record() as recorder:
            call(Net(), ({"x": torch.ones(2, 3)},), ({"x": torch.ones(5, 3)},))
        (size,) = recorder.explain("batch['x']")
        assert (size.dim, [seen.value for seen in size.seen]) == (0, [2, 5])

    def test_a_run_has_a_name_of_its_own(self):
        with record() as recorder:
            call(scaled, (torch.ones(2, 4), 3))
        assert list(recorder.profile().runs) == [recorder.run]

    def test_a_profile_that_is_begun_with_names_its_own_run(self):
        with record(run="A") as recorder:
            call(scaled, (torch.ones(2, 4), 3), (torch.ones(2, 6), 3))
        torch._dynamo.reset()
        with recorder.profile().apply(), record(run="B") as second:
            call(scaled, (torch.ones(2, 9), 3))
        (size,) = second.explain("x")
        assert [(seen.value, seen.run) for seen in size.seen] == [(4, "A"), (6, "A"), (9, "B")]

    def test_a_closure_is_recorded_for_every_process(self, count_compiles):
        def helper(x):
            return x + 1

        def f(x):
            return helper(x) * 2

        calls = (torch.ones(4),), (torch.ones(6),)
        with record() as recorder:
            call(f, *calls, backend=count_compiles)
        profile = recorder.profile()
        assert all(frame.is_portable for frame in profile.frames)
        torch._dynamo.reset()
        before = count_compiles.count
        with profile.apply():
            call(f, *calls, backend=count_compiles)
        assert count_compiles.count - before == 1

    def test_what_was_recorded_outlives_a_reset(self):
        with record() as recorder:
            call(scaled, (torch.ones(2, 4), 3))
            torch._dynamo.reset()
            call(scaled, (torch.ones(2, 6), 3))
        assert [seen.value for seen in next(iter(recorder.explain("x", dim=1))).seen] == [4, 6]


class TestObserver:
    @pytest.mark.usefixtures("torch_names")
    def test_torch_is_as_before(self):
        with record():
            assert hooks.installed()
        assert hooks.installed() == ()

    def test_torch_learns_the_same(self, count_compiles):
        calls = (torch.ones(2, 4), 3), (torch.ones(2, 6), 5), (torch.ones(3, 6), 5), (torch.ones(8, 8), 9)
        call(scaled, *calls, backend=count_compiles)
        alone, graphs = Profile.capture(), count_compiles.count
        torch._dynamo.reset()
        with record() as recorder:
            call(scaled, *calls, backend=count_compiles)
        assert count_compiles.count == 2 * graphs
        assert Profile.capture() == alone
        states = {source: known[:3] for source, known in recorder.profile(prune=False).frames[0].sources.items()}
        assert states == {source: known[:3] for source, known in alone.frames[0].sources.items()}

    def test_a_compilation_that_failed_teaches_nothing(self):
        """Else the next process begins with the size that the backend refuses."""

        def static_only(graph_module, example_inputs):
            if any(isinstance(value, torch.SymInt) for value in example_inputs):
                raise RuntimeError("no")
            return graph_module

        with record() as recorder:
            call(scaled, (torch.ones(2, 4), 3), backend=static_only)
            with pytest.raises(torch._dynamo.exc.BackendCompilerFailed):
                call(scaled, (torch.ones(2, 6), 3), backend=static_only)
        assert recorder.profile().frames[0].sources["L['x']"].size == (2, 4)
        assert not recorder.explain()

    def test_a_closure_over_an_object_with_getattr(self):
        class Config:
            def __getattr__(self, name):
                return self.__dict__["values"][name]

        config = Config()
        config.__dict__["values"] = {"factor": 2}

        def f(x):
            return x * config.factor

        with record() as recorder:
            call(f, (torch.ones(4),), (torch.ones(6),))
        torch._dynamo.reset()
        with recorder.profile().apply():
            call(f, (torch.ones(4),))

    def test_a_number_that_torch_cannot_make_symbolic_is_not_kept(self, tmp_path):
        with record() as recorder:
            call(lambda x, seed: x * (seed % 7), (torch.ones(2), 2**64 - 1), (torch.ones(2), 2**65 + 1))
        recorder.profile().save(tmp_path / "p.json")
        assert Profile.load(tmp_path / "p.json").frames == recorder.profile().frames

    def test_a_function_that_fails_on_other_values(self):
        with record() as recorder:
            call(scaled, (torch.ones(2, 4), 3))
            with pytest.raises(torch._dynamo.exc.TorchRuntimeError):
                call(scaled, (torch.ones(2, 5), None))
            call(scaled, (torch.ones(2, 6), 3))
        assert [seen.value for seen in next(iter(recorder.explain("x", dim=1))).seen] == [4, 6]
        assert [seen.value for seen in next(iter(recorder.explain("x", dim=1))).seen] == [4, 6]

    def test_a_function_that_torch_cannot_trace(self):
        def f(x):
            return x.numpy().tobytes().hex() if x.size(0) else x

        with record() as recorder:
            call(f, (torch.ones(4),), (torch.ones(6),))
        assert recorder.profile().frames


# Programs in which a size becomes dynamic that a loop specializes: in the next process its symbol takes the number of another
# symbol. Graphs are products of matrices, which inductor compiles without C++. Strides are products of symbols: torch 2.15
# leaves the names of symbols out of its cache keys, but not those in products.


def two_tensors(h, g):  # size 0 of `h` and size 1 of `g` want the number 75
    rows = h.size(0)
    out = g.transpose(1, 2).bmm(g)
    for _ in range(rows):
        out = out.bmm(out)
    return out


def two_sizes(a):  # sizes 0 and 1 of `a` want 97
    out = a[0].t().mm(a[0])
    for _ in range(a.size(0)):
        out = out.mm(out)
    return out


def number_and_size(b, k, w):  # `k` and size 2 of `b` want 16
    out = b
    for _ in range(k):
        out = torch.bmm(w, out)
    return out


def nonzero_before(c, y):  # a runtime assertion on the number of nonzeros, only while the size of `c` is a symbol
    found = torch.nonzero(c)
    out = y
    for row in range(c.size(0)):
        out = out.mm(c[row])
    return out, found


def squares(n):
    return torch.ones(n, 2, 2)


PROGRAMS = {
    "two_tensors": (
        two_tensors,
        [(torch.ones(rows), torch.ones(2, n, m)) for rows, n, m in ((4, 6, 5), (4, 7, 8), (5, 9, 3))],
        (torch.ones(4), torch.ones(2, 8, 4)),
    ),
    "two_sizes": (
        two_sizes,
        [(torch.ones(rows, n, m),) for rows, n, m in ((3, 6, 5), (3, 7, 8), (4, 9, 2))],
        (torch.ones(3, 8, 5),),
    ),
    "number_and_size": (
        number_and_size,
        [(torch.ones(2, 3, n), k, torch.ones(2, 3, 3)) for n, k in ((6, 4), (7, 4), (9, 5))],
        (torch.ones(2, 3, 8), 4, torch.ones(2, 3, 3)),
    ),
    "nonzero_before": (
        nonzero_before,
        [(squares(4), torch.ones(6, 2)), (squares(4), torch.ones(7, 2)), (squares(5), torch.ones(9, 2))],
        (squares(4), torch.ones(8, 2)),
    ),
}


def hits_and_misses(function, *calls):
    counters.clear()
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        call(function, *calls, backend="inductor")
    fx, aot = counters["inductor"], counters["aot_autograd"]
    return fx["fxgraph_cache_hit"], fx["fxgraph_cache_miss"], aot["autograd_cache_hit"], aot["autograd_cache_miss"]


class TestPrunable:
    def test_a_size_that_each_graph_specialized(self):
        def f(x, w):
            for row in range(w.size(0)):
                x = x + w[row]
            return x

        with record() as recorder:
            call(f, *((torch.ones(n), torch.ones(rows)) for n, rows in ((4, 2), (6, 2), (7, 3))))
        (size,) = recorder.prunable()
        assert (size.source, size.dim, size.location.line) == ("L['w']", 0, f.__code__.co_firstlineno + 1)
        sizes = {source: known.size for source, known in recorder.profile().frames[0].sources.items()}
        assert sizes == {"L['x']": (DYNAMIC,), "L['w']": (None,)}
        assert recorder.profile(prune=False).frames[0].sources["L['w']"].size == (DYNAMIC,)
        (fixed,) = recorder.explain("w")
        assert fixed.fixed_by == size.location

    def test_a_size_that_one_graph_uses_is_not_prunable(self):
        def f(x, flag):
            if flag:
                for row in range(x.size(0)):
                    x = x + row
            return x * 2

        with record() as recorder:
            call(f, (torch.ones(4), False), (torch.ones(6), False), (torch.ones(7), True))
        assert recorder.prunable() == ()

    def test_pruning_by_another_process_is_by_function(self):
        with record() as recorder:
            call(scaled, (torch.ones(2, 4), 3), (torch.ones(2, 6), 3))
        profile = recorder.profile()
        other = FrameProfile("/b.py", "1", "g", 1, sources=profile.frames[0].sources)
        both = Profile(join_frames((*profile.frames, other)))
        assert both.prune(drop=recorder.prunable()) == both

    @pytest.mark.usefixtures("torch_names")
    @pytest.mark.parametrize("name", PROGRAMS)
    def test_the_warm_process_hits_every_cache(self, name, tmp_path, monkeypatch):
        """With torch's own names of symbols; beside it torch's own profile, which misses."""
        monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
        function, cold, warm = PROGRAMS[name]
        with record() as recorder:
            assert hits_and_misses(function, *cold)[0] == 0
        of_torch, pruned = Profile.capture(), recorder.profile()
        assert of_torch.diff(pruned)
        torch._dynamo.reset()
        with of_torch.apply():
            assert hits_and_misses(function, warm) == (0, 1, 0, 1)
        torch._dynamo.reset()
        with pruned.apply():
            assert hits_and_misses(function, warm) == (1, 0, 1, 0)
