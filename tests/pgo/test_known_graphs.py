"""A second process traces the graphs that the first one compiled, so that it finds them in torch's caches on disk."""

from __future__ import annotations

import pytest
import torch
from torch._dynamo.utils import counters

import dynx
from dynx import pgo
from dynx.pgo import Profile
from dynx.pgo._known_graphs import always_fixed, needless
from dynx.records.profile import DYNAMIC, GraphSize

ones = torch.ones


class Graphs:
    """A backend that keeps for each graph the sizes of its inputs, a symbol as `?`, one that a line fixed to 4 as `4!`."""

    def __init__(self):
        self.sizes = []

    def __call__(self, graph_module, example_inputs):
        values = [node.meta["example_value"] for node in graph_module.graph.nodes if node.op == "placeholder"]
        tensors = [value for value in values if isinstance(value, torch.Tensor)]
        self.sizes.append([[self.shown(size) for size in tensor.shape] for tensor in tensors])
        return graph_module

    def shown(self, size):
        if not isinstance(size, torch.SymInt):
            return size
        fixed = size.node.maybe_as_int()
        return "?" if fixed is None else f"{fixed}!"


def graphs_of(function, *calls, profile=None):
    """Return the sizes in the graphs of a process of its own, and its profile."""
    torch._dynamo.reset()
    backend = Graphs()
    applied = profile.apply() if profile is not None else None
    with pgo.record() as recorder:
        compiled = torch.compile(function, backend=backend)
        for arguments in calls:
            compiled(*arguments)
        learned = recorder.profile()
    if applied is not None:
        applied.remove()
    torch._dynamo.reset()
    return backend.sizes, learned


def rows_in_a_loop(xs, y):
    for row in range(xs.shape[0]):
        y = y + xs[row]
    return y


def slice_of_columns(x):
    return x[:, :16] * 2


class TestTheGraphOfTheFirstProcess:
    def test_a_size_that_changed_together_with_another_one(self):
        """No graph was compiled with `xs` static and `y` dynamic: the next process would compile it anew."""
        calls = [(ones(rows), ones(length)) for rows, length in ((3, 6), (4, 7), (5, 9))]
        first, profile = graphs_of(rows_in_a_loop, *calls)
        assert first == [[[3], [6]], [["4!"], ["?"]], [["5!"], ["?"]]]
        assert profile.frames[0].sources["L['xs']"].size == (DYNAMIC,)
        second, again = graphs_of(rows_in_a_loop, *calls, profile=profile)
        assert second == first
        assert set(again.frames[0].graphs) == set(profile.frames[0].graphs)

    def test_a_size_without_which_a_graph_was_compiled(self):
        calls = [(ones(rows), ones(length)) for rows, length in ((4, 6), (4, 7), (5, 9))]
        _, profile = graphs_of(rows_in_a_loop, *calls)
        assert profile.frames[0].sources["L['xs']"].size == (None,)
        with pgo.record() as recorder, profile.apply():
            compiled = torch.compile(rows_in_a_loop, backend="eager")
            compiled(ones(4), ones(8))  # has the static graph
            assert not recorder.prunable()
            compiled(ones(5), ones(8))  # has the one in which the loop fixed a symbol
        assert [size.source for size in recorder.prunable()] == ["L['xs']"]

    def test_the_value_at_which_a_slice_takes_all(self):
        """`x[:, :16]` of a width of 16 is traced as `x`, whose graph was compiled with a static width."""
        calls = [(ones(rows, width),) for rows, width in ((8, 16), (8, 20), (6, 24))]
        first, profile = graphs_of(slice_of_columns, *calls)
        assert first == [[[8, 16]], [[8, "?"]], [["?", "?"]]]
        second, _ = graphs_of(slice_of_columns, *calls, profile=profile)
        assert second == [[[8, 16]], [["?", "?"]]]

    def test_a_call_that_no_graph_fits_has_the_sizes_that_torch_learned(self):
        calls = [(ones(rows), ones(length)) for rows, length in ((3, 6), (4, 7))]
        _, profile = graphs_of(rows_in_a_loop, *calls)
        second, _ = graphs_of(rows_in_a_loop, (ones(8), ones(8)), profile=profile)
        assert second == [[["8!"], ["?"]]]

    def test_the_graph_of_each_rank(self):
        """Ranks with one size each share a profile: the size is not dynamic on a rank whose graph is static."""
        ranks = [graphs_of(slice_of_columns, (ones(4, width),))[1] for width in (18, 20)]
        shared = ranks[0].merge(ranks[1])
        assert shared.frames[0].sources["L['x']"].size == (4, DYNAMIC)
        assert [graphs_of(slice_of_columns, (ones(4, width),), profile=shared)[0] for width in (18, 20, 24)] == [
            [[[4, 18]]],
            [[[4, 20]]],
            [[[4, "?"]]],
        ]

    def test_many_ranks_with_a_size_each(self):
        """A rank that sees the sizes of all others compiles a few of their graphs, then the dynamic one; torch stops at 8."""
        widths = range(18, 30)
        ranks = [graphs_of(slice_of_columns, (ones(4, width),))[1] for width in widths]
        shared = ranks[0].merge(*ranks[1:])
        graphs, _ = graphs_of(slice_of_columns, *((ones(4, width),) for width in widths), profile=shared)
        assert graphs == [[[4, 18]], [[4, 19]], [[4, 20]], [[4, "?"]]]

    def test_no_advice_to_leave_out_what_is_kept_for_its_graphs(self):
        """DX405 says to leave a fixed size out of the profile; here the next process would miss."""
        calls = [(ones(rows), ones(length)) for rows, length in ((3, 6), (4, 7), (5, 9))]
        _, profile = graphs_of(rows_in_a_loop, *calls)
        with profile.apply(), dynx.watch() as watch:
            compiled = torch.compile(rows_in_a_loop, backend="eager")
            compiled(ones(4), ones(7))
        assert [fixed.source for fixed in watch.specialized] == ["L['xs'].size()[0]"]
        assert not [finding for finding in watch.findings if finding.rule == "DX405"]
        assert [str(change) for change in watch.dynamic] == [
            f"L['y'] size 0: dynamic from a profile, 6 then 7 in run {next(iter(profile.runs))}"
        ]

    def test_numbers(self):
        def scaled(x, k):
            for _ in range(k):
                x = x + 1
            return x

        calls = [(ones(length), k) for length, k in ((4, 2), (6, 3), (7, 4))]
        first, profile = graphs_of(scaled, *calls)
        second, again = graphs_of(scaled, *reversed(calls), profile=profile)
        assert first == [[[4]], [["?"]], [["?"]]]
        assert second == [[["?"]], [["?"]], [[4]]]
        assert again.frames[0].graphs == profile.frames[0].graphs


class TestWhatComesBeforeAProfile:
    """Marks of the program hold, as without a profile."""

    @pytest.fixture
    def profile(self):
        calls = [(ones(rows), ones(length)) for rows, length in ((3, 6), (4, 7), (5, 9))]
        return graphs_of(rows_in_a_loop, *calls)[1]

    def test_mark_dynamic(self, profile):
        y = ones(6)
        torch._dynamo.mark_dynamic(y, 0)
        assert graphs_of(rows_in_a_loop, (ones(3), y), profile=profile)[0] == [[[3], ["?"]]]

    def test_mark_static(self, profile):
        y = ones(7)
        torch._dynamo.mark_static(y, 0)
        assert graphs_of(rows_in_a_loop, (ones(4), y), profile=profile)[0] == [[["4!"], [7]]]

    def test_sizes_that_the_program_marked_are_not_part_of_the_profile(self):
        x = ones(4)
        torch._dynamo.mark_dynamic(x, 0)
        _, profile = graphs_of(lambda x: x * 2, (x,))
        assert not profile.frames[0].graphs

    def test_the_user_prunes_a_size(self, profile):
        pruned = profile.prune(drop=r"L\['y'\]")
        assert graphs_of(rows_in_a_loop, (ones(4), ones(7)), profile=pruned)[0] == [[["4!"], [7]]]

    def test_a_source_that_is_another_kind_of_object_now(self, profile):
        class Rows(torch.Tensor):
            pass

        for xs in (ones(4).as_subclass(Rows), torch.nn.Parameter(ones(4)), ones(4).to_sparse().to_dense()):
            graphs_of(rows_in_a_loop, (xs, ones(7)), profile=profile)
        graphs_of(lambda xs, y: y * 2, (None, ones(7)), profile=profile)


def graph(**sizes):
    """`y="2.."` is a symbol, `x="4!"` one that a line fixed, `x=4` a static size."""
    return tuple(
        GraphSize(name, 0, False, text, text)
        if isinstance(text, int)
        else GraphSize(name, 0, True, int(text[0]), int(text[0]) if text.endswith("!") else None)
        for name, text in sizes.items()
    )


class TestNeedless:
    def test_a_graph_without_the_size(self):
        graphs = [graph(x=3, y=6), graph(x=3, y="2.."), graph(x="4!", y="2..")]
        assert needless(graphs) == {("x", 0)}
        assert not always_fixed(graphs)

    def test_no_graph_without_the_size(self):
        graphs = [graph(x=3, y=6), graph(x="4!", y="2..")]
        assert not needless(graphs)
        assert always_fixed(graphs) == {("x", 0)}

    def test_a_size_of_use(self):
        graphs = [graph(x=3, y=6), graph(x="2..", y=6), graph(x="2..", y="2..")]
        assert not needless(graphs) | always_fixed(graphs)

    def test_two_sizes_that_lines_fix(self):
        graphs = [graph(x=3, y=6), graph(x="4!", y=6), graph(x="4!", y="7!")]
        assert needless(graphs) == {("x", 0), ("y", 0)}


# Graphs are products of matrices, which inductor compiles without C++.


def over_marked(xs, y, z):
    for row in range(xs.shape[0]):
        z = z @ xs[row]
    return z, y.t() @ y


def train_width(x, w):
    return x[:, :16] @ w


MATRICES = [(ones(rows, 4, 4), ones(m, 3), ones(n, 4)) for rows, m, n in ((3, 6, 5), (4, 7, 8), (5, 9, 10))]
WIDTHS = [(ones(rows, width), ones(16, 4)) for rows, width in ((8, 16), (8, 20), (6, 24))]
PROGRAMS = {
    "over_marked": (over_marked, MATRICES, [*MATRICES[1:], MATRICES[0]]),
    "train_width": (train_width, WIDTHS, WIDTHS),
}


def misses(function, calls):
    counters.clear()
    compiled = torch.compile(function)
    for arguments in calls:
        compiled(*arguments)
    return counters["inductor"]["fxgraph_cache_miss"], counters["aot_autograd"]["autograd_cache_miss"]


@pytest.mark.slow
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_warm_process_misses_no_cache(name, tmp_path, monkeypatch):
    """Beside it torch's own profile, which misses once in each of these programs."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    function, cold, warm = PROGRAMS[name]
    with pgo.record() as recorder:
        assert misses(function, cold) == (3, 3)
    of_torch, learned = Profile.capture(), recorder.profile()
    torch._dynamo.reset()
    with learned.apply():
        assert misses(function, warm) == (0, 0)
    torch._dynamo.reset()
    with of_torch.apply():
        assert misses(function, warm) == (1, 1)
