"""What the calls of a check change stays in the copies."""

import contextvars
import functools
import io
import itertools
import types
from collections import deque

import numpy as np
import pytest
import torch
from support.wrong_gradients import Doubled
from torch import nn

import dynx
from dynx.errors import UsageError

setting = contextvars.ContextVar("setting", default=0)


class Registry:
    count = 0

    @classmethod
    def add(cls, value):
        cls.count += 1
        return value * cls.count


class Inner:
    made = 0


def x():
    return torch.ones(3)


def counting(value):
    counting.calls += 1
    return value * counting.calls


counting.calls = 0


def wrapped():
    @functools.wraps(counting)
    def wrapper(value):
        wrapper.calls += 1
        return value * wrapper.calls

    wrapper.calls = 0
    return wrapper


def caching(value):
    if not hasattr(Registry, "cached"):
        Registry.cached = 5
        caching.seen = True
        return value * 0
    return value * Registry.cached


def class_as_argument(cls, value):
    cls.made += 1
    return value * cls.made


def namespace(holder, value):
    holder.steps += 1
    holder.weight.add_(1)
    return value * holder.steps + holder.weight


def take(iterator, value):
    return value * next(iterator)


def setting_changed(value):
    setting.set(setting.get() + 1)
    return value * setting.get()


def write(stream, value):
    stream.write(b"a")
    return value * 2


def draw(generator, value):
    return value + float(generator.random())


def nested_array(array, value):
    array[0].append(1)
    return value * len(array[0])


def objects(value):
    held = np.empty(2, dtype=object)
    held[0] = [1]
    return held


@pytest.mark.slow
@pytest.mark.parametrize("kind", [list, tuple, dict, itertools.cycle, itertools.chain, enumerate, zip])
def test_iterators(kind):
    items = {1: "a", 2: "b", 3: "c"}
    iterator = kind(items) if kind in (itertools.cycle, itertools.chain, enumerate, zip) else iter(kind(items))
    first = next(iter(kind(items)))

    def step(iterator, value):
        next(iterator)
        return value * 2

    report = dynx.check(step, iterator, x(), calls=1)
    assert not report.diffs
    assert next(iterator) == first


@pytest.mark.slow
def test_attributes_of_functions():
    for fn in (counting, wrapped()):
        dynx.check(fn, x()).assert_ok()
        assert fn.calls == 0


def test_new_attributes_of_classes_and_functions():
    dynx.check(caching, x()).assert_ok()
    assert not hasattr(Registry, "cached")
    assert not hasattr(caching, "seen")


@pytest.mark.slow
def test_class_methods():
    for fn in (Registry.add, Registry().add, functools.partial(Registry.add)):
        assert not dynx.check(fn, x()).shared
        assert Registry.count == 0


@pytest.mark.slow
def test_classes_as_arguments():
    for arguments in ((Inner, x()), ((lambda: Inner)(), x())):
        dynx.check(class_as_argument, *arguments)
        assert Inner.made == 0


@pytest.mark.slow
def test_namespaces():
    holder = types.SimpleNamespace(steps=0, weight=torch.zeros(3))
    dynx.check(namespace, holder, x()).assert_ok()
    assert holder.steps == 0
    assert torch.equal(holder.weight, torch.zeros(3))


def test_context_variables():
    dynx.check(setting_changed, x())
    assert setting.get() == 0


@pytest.mark.slow
def test_streams_and_generators():
    stream, generator = io.BytesIO(), np.random.default_rng(0)
    state = generator.bit_generator.state
    assert not dynx.check(write, stream, x(), calls=1).shared
    dynx.check(draw, generator, x(), calls=1).assert_ok()
    assert stream.getvalue() == b""
    assert generator.bit_generator.state == state


def test_arrays_of_objects():
    array = objects(x())
    dynx.check(nested_array, array, x(), calls=1)
    assert array[0] == [1]


@pytest.mark.slow
def test_contents_of_arrays_are_compared():
    def plus_five(gm, _):
        return lambda *args: [gm(*args)[0] + 5]

    assert dynx.check(lambda array: array * 2, np.ones(3), calls=1).ok
    (diff,) = dynx.check(lambda array: array * 2, np.ones(3), calls=1, backend=plus_five).diffs
    assert (diff.path, diff.kind) == ("result", "tensor")


def test_gradients_of_tensors_in_objects():
    def wrong(gm, _):
        return lambda *args: [Doubled.apply(gm(*args)[0])]

    leaf = x().requires_grad_()
    report = dynx.check(lambda value, kept: (kept.append(value * 2), None)[1], leaf, deque(), calls=1, backend=wrong)
    assert [diff.path for diff in report.diffs] == ["gradient of args[0]"]


@pytest.mark.slow
@pytest.mark.parametrize(("dtype", "error"), [(torch.float16, 0.01), (torch.bfloat16, 0.1)])
def test_errors_in_16_bits(dtype, error):
    def off(gm, _):
        return lambda *args: [gm(*args)[0] + error]

    values = torch.linspace(-1, 1, 20).to(dtype)
    assert dynx.check(lambda value: value + 0, values, backend=off, calls=1).diffs
    dynx.check(nn.Linear(20, 20).to(dtype), values, backend="inductor", calls=1).assert_ok()


def test_arguments_that_an_operator_computed():
    leaf = x().requires_grad_()
    report = dynx.check(lambda value: value.mul_(2).sin(), leaf * 1)
    assert report.ok, report.text


def to_meta(gm, _):
    return lambda *args: [gm(*args)[0].to("meta")]


@pytest.mark.slow
def test_unusual_tensors():
    dynx.check(nn.LazyLinear(3), torch.ones(2, 3), calls=1)
    nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged)
    dynx.check(lambda value: value * 2, nested, calls=1)
    (diff,) = dynx.check(lambda value: value * 2, x(), calls=1, backend=to_meta).diffs
    assert "meta" in diff.compiled


def test_results_that_contain_themselves():
    def loop(value):
        items = [value * 2]
        items.append(items)
        return items

    dynx.check(loop, x()).assert_ok()


def test_a_backend_that_fails_is_no_vacuous_check():
    def fail(gm, _):
        raise ZeroDivisionError

    report = dynx.check(lambda value: value * 2, x(), backend=fail)
    assert not report.is_vacuous
    assert "BackendCompilerFailed" in report.text


@pytest.mark.slow
def test_modes_after_an_exit():
    def leave(value):
        torch.set_default_dtype(torch.float64)
        torch.set_grad_enabled(False)
        raise SystemExit(3)

    dynx.check(leave, x())
    assert torch.get_default_dtype() is torch.float32
    assert torch.is_grad_enabled()


def test_autocast_that_a_call_leaves_on_is_off_afterwards():
    """On each device, with its dtype."""

    def leave(value):
        torch.set_autocast_enabled("cuda", True)
        torch.set_autocast_dtype("cpu", torch.float16)
        return value * 2

    before = torch.is_autocast_enabled("cuda"), torch.get_autocast_dtype("cpu")
    dynx.check(leave, x())
    assert (torch.is_autocast_enabled("cuda"), torch.get_autocast_dtype("cpu")) == before


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"inputs": torch.ones(3, 4)}, "inputs is no list"),
        ({"inputs": 3}, "inputs is no list"),
        ({"inputs": {"x": 1}}, "inputs is no list"),
        ({"state": [1]}, "state is no dict"),
        ({"backend": "nope"}, "there is no backend 'nope'"),
        ({"backend": 3}, "backend=3"),
    ],
)
def test_arguments_of_the_wrong_type(options, message):
    with pytest.raises(UsageError, match=message):
        dynx.check(lambda value: value, x(), **options)


def test_one_tolerance():
    assert dynx.check(lambda value: value * 2, x(), rtol=1e-3).ok


def test_coroutines():
    async def later(value):
        return value * 2

    with pytest.raises(UsageError, match="coroutine"):
        dynx.check(later, x())


def test_deep_arguments():
    deep: list[object] = []
    for _ in range(5000):
        deep = [deep]
    with pytest.raises(UsageError, match="recursion limit"):
        dynx.check(lambda items, value: value * 2, deep, x())
