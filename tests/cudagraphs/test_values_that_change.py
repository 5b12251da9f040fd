"""A value that a recorded function reads changes after the capture, in one of many ways: the next call has to use it."""

from __future__ import annotations

import contextlib
import warnings

import pytest
import torch
from support.changing_values import CASES, linear
from support.configs import config_for
from support.twin_training import TwinTraining
from support.ways_to_hold_state import WAYS
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from dynx import cudagraphs
from dynx.errors import DynxWarning, ReplayDiffers

EMULATOR = cudagraphs.Config(runtime="emulator")
small = nn.Linear(2, 2)
COMPUTED = {  # names that the code computes, which the documentation says are not followed
    *("computed_attribute_of_a_class", "computed_attribute_of_a_module", "computed_global"),
}
GRADIENTS = {"attribute_that_a_backward_reads", "closure_that_a_backward_reads"}  # computed inside


def assert_follows(recorded, f, program):
    """Raise AssertionError unless calls have the results of the function after each change that the program makes."""
    x, is_over = torch.randn(2, 3), False
    while not is_over:
        is_over = next(program, "over") == "over"
        for _ in range(3):
            torch.testing.assert_close(recorded(x), f(x))


@pytest.mark.parametrize("name", CASES)
def test_fast_path_uses_a_changed_value_in_the_next_call(name):
    program = CASES[name]()
    f, x = next(program), torch.randn(2, 3)
    recorded = cudagraphs.fast_path(f, config=EMULATOR)
    for _ in range(3):
        torch.testing.assert_close(recorded(x), f(x))
    assert_follows(recorded, f, program)


@pytest.mark.parametrize("name", sorted(set(CASES) - GRADIENTS))
def test_train_step_uses_a_changed_value_in_the_next_call(name):
    program = CASES[name]()
    f, x = next(program), torch.randn(2, 3)

    def loss(x):
        return f(x).mean()

    recorded = cudagraphs.train_step(loss, linear.parameters(), config=EMULATOR)
    for _ in range(3):
        torch.testing.assert_close(recorded(x), loss(x).detach())
    assert_follows(recorded, lambda x: loss(x).detach(), program)


def with_module(f):
    def whole(*args):
        return small(f(*args))

    return whole


def totals(way, config=None):
    """Add a number from a state to a tensor in each call; return the tensor's values before and after the number changes."""
    state, total = {"number": 1.0}, torch.zeros(())

    def read(state):
        total.add_(state["number"])

    made = WAYS[way](read, state)
    f, *arguments = made if isinstance(made, tuple) else (made,)
    f = with_module(f)
    if config is not None:
        f = cudagraphs.fast_path(f, config=config)
    for _ in range(4):
        f(*arguments, torch.ones(2))
    before = total.item()
    state["number"] = 10.0
    for _ in range(3):
        f(*arguments, torch.ones(2))
    return before, total.item()


class Doubled(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        return result * 2 if function is torch.relu else result


def test_call_under_a_mode_of_torch_does_as_the_mode_says():
    run, x, mode = cudagraphs.fast_path(lambda x: torch.relu(linear(x) ** 2), config=EMULATOR), torch.ones(2, 3), Doubled()
    for is_active in (0, 0, 0, 1, 1, 1, 0, 1, 0):
        with mode if is_active else contextlib.nullcontext():
            result = run(x)
        torch.testing.assert_close(result, torch.relu(linear(x) ** 2) * (1 + is_active))  # 0 would be the same doubled


class DoubledOperator(TorchDispatchMode):
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        return result * 2 if function is torch.ops.aten.relu.default else result


def test_call_without_arguments_under_a_dispatch_mode_does_as_the_mode_says(device):
    """No layout of a tensor shows the mode."""
    relu, mode = nn.ReLU(), DoubledOperator()
    run = cudagraphs.fast_path(lambda: relu(torch.ones(2, 3, device=device)), config=config_for(device))
    for is_active in (0, 0, 0, 1, 1, 1, 0, 1, 0):
        with mode if is_active else contextlib.nullcontext():
            result = run()
        torch.testing.assert_close(result, torch.ones(2, 3, device=device) * (1 + is_active))


def test_default_device_is_that_of_the_call():
    run = cudagraphs.fast_path(lambda x: linear(x) * (2.0 if torch.zeros(()).is_meta else 1.0), config=EMULATOR)
    for device in ("cpu", "cpu", "cpu", "meta", "meta", "cpu"):
        with torch.device(device):
            result = run(torch.ones(2, 3, device="cpu"))
        torch.testing.assert_close(result, linear(torch.ones(2, 3)) * (2.0 if device == "meta" else 1.0))


class Scheduled:
    """A factor that an optimizer keeps in its groups or in the state of parameters."""

    def __init__(self):
        self.factor = 1.0


class Custom(torch.optim.Optimizer):
    """Steps by what its groups and the state of its parameters hold: numbers in lists, dicts and objects."""

    def __init__(self, params):
        super().__init__(params, {"lr": 0.1, "factors": [1.0], "options": {"factors": [1.0]}, "schedule": Scheduled()})
        for group in self.param_groups:
            for param in group["params"]:
                self.state[param] = {"scales": [1.0], "schedule": Scheduled()}

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            factor = group["factors"][0] * group["options"]["factors"][0] * group["schedule"].factor
            for param in group["params"]:
                scale = self.state[param]["scales"][0] * self.state[param]["schedule"].factor
                param.sub_(param.grad, alpha=group["lr"] * factor * scale)


def change_list(optimizer):
    optimizer.param_groups[0]["factors"][0] = 2.0


def change_nested_list(optimizer):
    optimizer.param_groups[0]["options"]["factors"][0] = 2.0


def change_object(optimizer):
    optimizer.param_groups[0]["schedule"].factor = 2.0


def change_list_of_a_parameter(optimizer):
    for param in optimizer.param_groups[0]["params"]:
        optimizer.state[param]["scales"][0] = 2.0


def change_object_of_a_parameter(optimizer):
    for param in optimizer.param_groups[0]["params"]:
        optimizer.state[param]["schedule"].factor = 2.0


@pytest.mark.parametrize(
    "change", [change_list, change_nested_list, change_object, change_list_of_a_parameter, change_object_of_a_parameter]
)
def test_train_step_uses_what_an_optimizer_keeps_in_containers_and_objects(change):
    twins = TwinTraining(
        "cpu", nn.Linear(3, 1), lambda model: Custom(model.parameters()), loss=lambda model, x: model(x).mean()
    )
    twins.assert_steps_agree(4, shape=(4, 3))
    twins.change(lambda model, optimizer: change(optimizer))
    twins.assert_steps_agree(4, shape=(4, 3))


@pytest.mark.parametrize("way", [way for way in WAYS if way not in COMPUTED])
def test_state_is_read_anew_however_a_program_holds_it(way):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DynxWarning)
        assert totals(way, EMULATOR) == totals(way)


@pytest.mark.parametrize("way", sorted(COMPUTED))
def test_state_behind_a_computed_name_is_found_by_verify(way):
    with pytest.raises(ReplayDiffers):
        totals(way, cudagraphs.Config(runtime="emulator", verify=5))
