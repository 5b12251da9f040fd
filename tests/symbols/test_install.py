"""`symbols.install`: names of symbols that depend on their source alone."""

from __future__ import annotations

import inspect
import itertools
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch._dynamo.source import LocalSource, TensorProperty, TensorPropertySource
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv

from dynx import symbols
from dynx._torch import capabilities
from dynx.comptime import comptime
from dynx.errors import UnsupportedTorch, UsageError

_COLLIDING = ("L['a'].size()[0]", "L['a'].size()[1]")  # both 97 in torch


def names_of(shape_env, sources):
    """The numbers that a ShapeEnv gives to sources, by source, in the order in which they are asked for."""
    return {source: shape_env._generate_unique_id(source) for source in sources}


def few_bits(source, attempt):
    return (sum(source.encode()) + 7 * attempt) % 4


class TestNames:
    def test_torch_gives_colliding_sources_names_that_depend_on_the_order(self):
        first, second = names_of(ShapeEnv(), _COLLIDING), names_of(ShapeEnv(), _COLLIDING[::-1])
        assert first != second
        assert set(first.values()) == {97, 98}

    @given(st.permutations([f"L['kw']['t{index}'].size()[{dim}]" for index in range(15) for dim in range(3)]))
    def test_names_do_not_depend_on_the_order(self, sources):
        with symbols.install():
            names = names_of(ShapeEnv(), sources)
            assert names == {source: names_of(ShapeEnv(), [source])[source] for source in sources}
        assert len(set(names.values())) == len(sources)

    @pytest.mark.parametrize(("scheme", "bits"), [("blake63", 63), ("blake31", 31)])
    def test_numbers_have_the_bits_of_the_scheme(self, scheme, bits):
        with symbols.install(scheme):
            numbers = names_of(ShapeEnv(), [f"L['x{index}']" for index in range(200)]).values()
        assert bits - 3 <= max(numbers).bit_length() <= bits

    @pytest.mark.slow
    def test_names_are_the_same_in_every_process(self):
        with symbols.install():
            here = names_of(ShapeEnv(), _COLLIDING)
        program = (
            "import json; from dynx import symbols; from torch.fx.experimental.symbolic_shapes import ShapeEnv\n"
            f"symbols.install(); print(json.dumps({{s: ShapeEnv()._generate_unique_id(s) for s in {_COLLIDING}}}))"
        )
        env = os.environ | {"PYTHONHASHSEED": "77"}
        printed = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, check=True).stdout
        assert json.loads(printed) == here

    def test_sizes_ints_and_floats_are_named_by_the_scheme(self):
        named = []

        def backend(graph_module, example_inputs):
            named.extend(symbols.report(graph_module).symbols)
            return graph_module

        with symbols.install("blake31"), torch._dynamo.config.patch(specialize_float=False):
            torch.compile(lambda x, n, p: x * n * p, backend=backend, dynamic=True)(torch.ones(3), 5, 0.5)
        assert {symbol.sources[0] for symbol in named} >= {"L['x'].size()[0]", "L['n']"}
        assert all(int(symbol.name.lstrip("szf")) > 100 for symbol in named)
        assert not any(symbol.collided for symbol in named)


class TestCollisions:
    def test_a_collision_ends_and_is_reported(self):
        env = ShapeEnv()
        with symbols.install(few_bits):
            sizes = [f"L['x'].size()[{dim}]" for dim in range(6)]  # more than four: the scheme has no number for two of them
            made = [symbol_for(env, dim) for dim in range(6)]
            names = [symbol.name for symbol in made]
            report = symbols.report(env)
        assert len(set(names)) == 6
        assert [symbol.sources[0] for symbol in report.symbols] == sizes
        own = [few_bits(size, 0) for size in sizes]
        assert [symbol.collided for symbol in report.symbols] == [number in own[:index] for index, number in enumerate(own)]
        assert report.scheme == "few_bits"

    def test_names_are_the_same_in_every_process_for_one_order(self):
        with symbols.install(few_bits):
            for order in itertools.permutations([f"L['x{index}']" for index in range(4)]):
                assert names_of(ShapeEnv(), order) == names_of(ShapeEnv(), order)

    def test_a_scheme_without_a_hash(self):
        class Lengths(list):  # lists are not hashable
            def __call__(self, source, attempt):
                return len(source) + attempt

        with symbols.install(Lengths()):
            assert ShapeEnv()._generate_unique_id("L['x'].size()[0]") == 16

    def test_a_scheme_with_one_number_ends(self):
        with symbols.install(lambda source, attempt: 3):
            assert sorted(names_of(ShapeEnv(), map(str, range(50))).values()) == list(range(3, 53))

    def test_collisions_of_torch_are_reported(self):
        env = ShapeEnv()
        for dim, name in ((0, "a"), (1, "a"), (0, "b")):
            symbol_for(env, dim, name)
        report = symbols.report(env)
        assert [(symbol.name, symbol.collided) for symbol in report.symbols[:2]] == [("s97", False), ("s98", True)]
        assert report.scheme == "torch"


def symbol_for(env, dim, name="x"):
    """A symbol of a tensor's size, as torch makes it while it wraps inputs; each has a value of its own."""
    source = TensorPropertySource(LocalSource(name), TensorProperty.SIZE, dim)
    hint = 10 * (1 + len(env.var_to_sources))
    return env.create_symbol(hint, source, dynamic_dim=DimDynamic.DYNAMIC, constraint_dim=None)


class TestHandle:
    def test_remove_restores_the_class_exactly(self):
        before = dict(vars(ShapeEnv))
        with symbols.install():
            assert vars(ShapeEnv) != before
        after = vars(ShapeEnv)
        assert after.keys() == before.keys()
        assert all(after[name] is before[name] for name in before)

    def test_the_newest_scheme_is_in_force(self):
        outer = symbols.install(lambda source, attempt: 1_000 + attempt)
        inner = symbols.install(lambda source, attempt: 2_000 + attempt)
        assert names_of(ShapeEnv(), ["a"]) == {"a": 2_000}
        outer.remove()
        assert names_of(ShapeEnv(), ["a"]) == {"a": 2_000}
        inner.remove()
        inner.remove()
        assert names_of(ShapeEnv(), ["a"])["a"] < 100

    def test_it_describes_itself(self):
        handle = symbols.install()
        assert repr(handle) == "<scheme blake63 for names of symbols, installed>"
        handle.remove()
        assert "removed" in repr(handle)

    def test_an_exception_in_the_block_restores_torch(self):
        before = vars(ShapeEnv)["_generate_unique_id"]
        with pytest.raises(ZeroDivisionError), symbols.install():
            raise ZeroDivisionError
        assert vars(ShapeEnv)["_generate_unique_id"] is before


class TestBadSchemes:
    def test_an_unknown_name(self):
        with pytest.raises(UsageError, match=r"'md5'.*\n.*blake63, blake31"):
            symbols.install("md5")

    @pytest.mark.parametrize("number", [-1, 1.0, True, None, "3"])
    def test_a_function_that_returns_no_number(self, number):
        with pytest.raises(UsageError, match="not negative"):
            symbols.install(lambda source, attempt: number)

    def test_a_function_that_differs_between_calls(self):
        numbers = itertools.count()
        with pytest.raises(UsageError, match="different numbers for the same source"):
            symbols.install(lambda source, attempt: next(numbers))

    def test_something_that_cannot_be_called(self):
        with pytest.raises(UsageError, match="not callable"):
            symbols.install(63)

    def test_nothing_is_installed_after_an_error(self):
        before = vars(ShapeEnv)["_generate_unique_id"]
        for scheme in ("md5", 63, lambda source, attempt: -1):
            with pytest.raises(UsageError):
                symbols.install(scheme)
        assert vars(ShapeEnv)["_generate_unique_id"] is before

    def test_another_signature_in_torch(self, monkeypatch):
        def _generate_unique_id(self, source_name, kind):
            return 0

        monkeypatch.setattr(ShapeEnv, "_generate_unique_id", _generate_unique_id)
        with pytest.raises(UnsupportedTorch, match=r"kind(.|\n)*dynx doctor"):
            symbols.install()

    def test_no_such_method_in_torch(self, monkeypatch):
        monkeypatch.delattr(ShapeEnv, "_generate_unique_id")
        with pytest.raises(UnsupportedTorch, match="_generate_unique_id"):
            symbols.install()


class TestTorchUnderLongNames:
    def test_export_saves_and_loads(self, tmp_path):
        class Model(torch.nn.Module):
            def forward(self, x, y):
                return torch.cat([x * 2, y]).sum(0) + x.size(0)

        inputs = torch.ones(4, 3), torch.ones(6, 3)
        sizes = {"x": {0: torch.export.Dim("a")}, "y": {0: torch.export.Dim("b")}}
        with symbols.install():
            program = torch.export.export(Model(), inputs, dynamic_shapes=sizes)
            torch.export.save(program, tmp_path / "model.pt2")
        loaded = torch.export.load(tmp_path / "model.pt2").module()  # torch names new symbols here
        for length in (3, 9):
            x, y = torch.rand(length, 3), torch.rand(length + 1, 3)
            assert torch.equal(loaded(x, y), Model()(x, y))

    def test_recorded_events_are_replayed(self):
        from torch.fx.experimental.recording import replay_shape_env_events

        with symbols.install():
            env = ShapeEnv(should_record_events=True)
            symbol = symbol_for(env, 0)
            size = env.create_symintnode(symbol, hint=10)
            assert size > 2
            replayed = replay_shape_env_events(env.events)
            env.check_equal(replayed)
        assert str(symbol) in map(str, replayed.var_to_sources)

    def test_dynx_shows_short_names(self):
        shown = []

        def f(x):
            y = x * x.size(0) * x.size(1)
            comptime(lambda ctx: shown.append(str(ctx.local("y"))))
            return y

        with symbols.install():
            torch.compile(f, backend="eager", dynamic=True)(torch.ones(4, 6))
        assert shown == ["Tensor(float32, [s0=4, s1=6])"]


@pytest.fixture(scope="module")
def warm(tmp_path_factory):
    program = Path(__file__).parent / "warm_start.py"
    env = os.environ | {"TORCHINDUCTOR_CACHE_DIR": str(tmp_path_factory.mktemp("inductor"))}
    for seed, marked in (("1", "0"), ("2", "1")):
        run = [sys.executable, str(program), marked]
        done = subprocess.run(run, env=env | {"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True)
    return {(amount, scheme): tuple(counts) for amount, scheme, *counts in json.loads(done.stdout.splitlines()[-1])}


@pytest.mark.slow
class TestTwoProcesses:
    """The second process marks more tensors as dynamic, whose sizes are then specialized: the graph is the same."""

    @pytest.mark.parametrize("amount", [1, 3, 10])
    def test_torch_misses(self, warm, amount):
        assert warm[amount, ""] == (0, 1, 0, 1)

    @pytest.mark.parametrize("amount", [1, 3, 10])
    def test_names_by_source_hit(self, warm, amount):
        assert warm[amount, "blake63"] == (1, 0, 1, 0)


def test_the_hook_point_describes_torch():
    assert capabilities.capability("symbol_id").state == "ok"
    assert tuple(inspect.signature(ShapeEnv._generate_unique_id).parameters) == ("self", "source_name")
