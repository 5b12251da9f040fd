"""What Python code of a model reads besides tensors: after it changes, calls record again or run uncaptured."""

from __future__ import annotations

import copy
import types
from dataclasses import dataclass, field

import pytest
import torch
from support.agreement import assert_agree, assert_same_params
from support.configs import config_for
from torch import nn
from torch.nn.modules import module as hooks_of_all_modules

from dynx import cudagraphs
from dynx.errors import DynxWarning

FACTOR = 1.0


def double(x):
    return 2 * x


def triple(x):
    return 3 * x


helper = double


@dataclass
class Options:
    scale: float = 1.0
    steps: list = field(default_factory=lambda: [1.0, {"k": 1.0}])


class Base(nn.Module):
    offset = 1.0

    def shift(self, x):
        return x + self.offset


class Model(Base):
    factor = 1.0

    def __init__(self):
        super().__init__()
        self.linear, self.dropout = nn.Linear(3, 3), nn.Dropout(0.0)
        self.scale = 1.0
        self.sizes, self.named, self.flags, self.options = [1.0, 2.0], {"k": 1.0, "inner": {"k": 1.0}}, set(), Options()
        self.space = types.SimpleNamespace(scale=1.0)
        self.scales = torch.ones(3)

    def forward(self, x):
        y = self.shift(self.linear(x)) * self.factor * self.scale
        y = y * self.sizes[1] * self.named["k"] * self.named["inner"]["k"]
        y = y * self.options.scale * self.options.steps[0] * self.options.steps[1]["k"] * self.space.scale
        y = y + len(self.flags) + torch.zeros(3, device=x.device)
        if torch.are_deterministic_algorithms_enabled():
            y = y + 1
        if self.linear.weight.requires_grad:
            y = y + 2
        return self.dropout(y) * self.scales


def model_on(device, make=Model):
    model = make().to(device)
    model.scales = model.scales.to(device)  # no buffer, which `to` would move
    return model


class Other(Model):
    def forward(self, x):
        return super().forward(x) + 5


def another_forward(self, x):
    return self.linear(x) - 7


def another_shift(self, x):
    return x - self.offset


class Held:
    def __init__(self):
        self.value, self.values = 1.0, [1.0]


# Changes of a model, with what undoes those that would reach other tests.
CHANGES_OF_A_MODULE = {
    "attribute": lambda model: setattr(model, "scale", 3.0),
    "attribute of a submodule": lambda model: setattr(model.dropout, "p", 1.0),
    "element of a list": lambda model: model.sizes.__setitem__(1, 5.0),
    "value in a dict": lambda model: model.named.update(k=3.0),
    "value in an inner dict": lambda model: model.named["inner"].update(k=3.0),
    "element of a set": lambda model: model.flags.add("a"),
    "attribute of an object": lambda model: setattr(model.options, "scale", 3.0),
    "list of an object": lambda model: model.options.steps.__setitem__(0, 3.0),
    "dict in a list of an object": lambda model: model.options.steps[1].update(k=3.0),
    "attribute of a namespace": lambda model: setattr(model.space, "scale", 3.0),
    "tensor attribute": lambda model: setattr(model, "scales", torch.full_like(model.scales, 4.0)),
    "__class__": lambda model: setattr(model, "__class__", Other),
    "forward of the instance": lambda model: setattr(model, "forward", types.MethodType(another_forward, model)),
}


def change_class(monkeypatch, owner, **attributes):
    for name, value in attributes.items():
        monkeypatch.setattr(owner, name, value)


CHANGES_OF_A_CLASS = {
    "forward of the class": {"owner": Model, "forward": another_forward},
    "method of a base class": {"owner": Base, "shift": another_shift},
    "attribute of the class": {"owner": Model, "factor": 3.0},
    "attribute of a base class": {"owner": Base, "offset": 3.0},
    "forward of a class of torch": {"owner": nn.Dropout, "forward": lambda self, x: x + 9},
}


def fast_path_of(model, device):
    return cudagraphs.fast_path(model, config=config_for(device))


def graphed_of(function, device):
    return cudagraphs.graphed(lambda x: function(x), (torch.ones(2, 3, device=device),), config=config_for(device))


def run_and_change(make, model, device, change):
    run = make(model, device)
    assert_agree(run, model, lambda: (torch.randn(2, 3, device=device, dtype=torch.float32),))
    assert cudagraphs.stats().replays > 0
    change()
    assert_agree(run, model, lambda: (torch.randn(2, 3, device=device, dtype=torch.float32),))


@pytest.mark.parametrize("make", [fast_path_of, graphed_of])
@pytest.mark.parametrize("name", CHANGES_OF_A_MODULE)
def test_changes_of_a_module(device, make, name):
    model = model_on(device)
    run_and_change(make, model, device, lambda: CHANGES_OF_A_MODULE[name](model))


@pytest.mark.parametrize("make", [fast_path_of, graphed_of])
@pytest.mark.parametrize("name", CHANGES_OF_A_CLASS)
def test_changes_of_a_class(device, make, name, monkeypatch):
    run_and_change(make, model_on(device), device, lambda: change_class(monkeypatch, **CHANGES_OF_A_CLASS[name]))


CHANGES_OF_THE_PROCESS = {
    "default dtype": lambda: torch.set_default_dtype(torch.float64),
    "deterministic algorithms": lambda: torch.use_deterministic_algorithms(True),
    "forward hook of all modules": lambda: hooks_of_all_modules.register_module_forward_hook(lambda _, __, y: y + 1),
    "forward pre-hook of all modules": lambda: hooks_of_all_modules.register_module_forward_pre_hook(lambda _, x: (x[0] + 1,)),
}


@pytest.fixture
def restored_process():
    yield
    torch.set_default_dtype(torch.float32)
    torch.use_deterministic_algorithms(False)
    hooks_of_all_modules._global_forward_hooks.clear()
    hooks_of_all_modules._global_forward_pre_hooks.clear()


@pytest.mark.usefixtures("restored_process")
@pytest.mark.parametrize("make", [fast_path_of, graphed_of])
@pytest.mark.parametrize("name", CHANGES_OF_THE_PROCESS)
def test_changes_of_the_process(device, make, name):
    run_and_change(make, model_on(device), device, CHANGES_OF_THE_PROCESS[name])


LIBRARY_MODEL = """
from torch import nn

class Config:
    def __init__(self):
        self.scale, self.more, self.unread = 1.0, {"shift": 1.0}, 1.0

class Scaled(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config, self.linear = config, nn.Linear(3, 3)

    def forward(self, x):
        return self.scaled(self.linear(x))

    def scaled(self, x):
        return x * self.config.scale + self.config.more["shift"]
"""


@pytest.mark.parametrize("change", ["scale", "more"])
def test_config_of_a_model_of_a_library(device, change):
    """The code of libraries is not searched for names, except for that of the model's own classes."""
    library = {"__name__": "library.models"}
    exec(compile(LIBRARY_MODEL, f"{torch.__path__[0]}/../library/models.py", "exec"), library)
    model = nn.Sequential(library["Scaled"](library["Config"]()), nn.Linear(3, 3)).to(device)
    config = model[0].config
    changes = {"scale": lambda: setattr(config, "scale", 3.0), "more": lambda: config.more.update(shift=3.0)}
    run_and_change(fast_path_of, model, device, changes[change])


def test_attributes_that_no_code_reads_are_not_checked(device):
    library = {"__name__": "library.models"}
    exec(compile(LIBRARY_MODEL, f"{torch.__path__[0]}/../library/models.py", "exec"), library)
    model = library["Scaled"](library["Config"]()).to(device)
    run_and_change(fast_path_of, model, device, lambda: setattr(model.config, "unread", 3.0))
    assert cudagraphs.stats().recordings == 1


def test_requires_grad_that_the_model_reads(device):
    model = model_on(device)
    run_and_change(fast_path_of, model, device, lambda: model.requires_grad_(False))


def cases_of_names(device):
    """Return for each way to name a value a function that reads it, and one that changes it."""
    model, held, listed, named = nn.Linear(3, 3).to(device), Held(), [1.0, [1.0]], {"k": 1.0}
    number, function = 1.0, double

    def change_number():
        nonlocal number
        number = 3.0

    def change_function():
        nonlocal function
        function = triple

    def change_dict():
        nonlocal named
        named = {"k": 3.0}

    def default(x, scale=listed):
        return model(x) * scale[0]

    return {
        "closure": (lambda x: model(x) * number, change_number),
        "function in a closure": (lambda x: function(model(x)), change_function),
        "global": (lambda x: model(x) * FACTOR, lambda: globals().__setitem__("FACTOR", 3.0)),
        "function in a global": (lambda x: helper(model(x)), lambda: globals().__setitem__("helper", triple)),
        "attribute of an object": (lambda x: model(x) * held.value, lambda: setattr(held, "value", 3.0)),
        "list of an object": (lambda x: model(x) * held.values[0], lambda: held.values.__setitem__(0, 3.0)),
        "element of a list": (lambda x: model(x) * listed[0], lambda: listed.__setitem__(0, 3.0)),
        "element of an inner list": (lambda x: model(x) * listed[1][0], lambda: listed[1].__setitem__(0, 3.0)),
        "value in a dict": (lambda x: model(x) * named["k"], lambda: named.update(k=3.0)),
        "another dict": (lambda x: model(x) * named["k"], change_dict),
        "new key of a dict": (lambda x: model(x) * len(named), lambda: named.update(other=3.0)),
        "default value": (default, lambda: setattr(default, "__defaults__", ([3.0],))),
        "content of a default value": (default, lambda: listed.__setitem__(0, 3.0)),
    }


@pytest.fixture
def restored_globals(monkeypatch):
    monkeypatch.setitem(globals(), "FACTOR", FACTOR)
    monkeypatch.setitem(globals(), "helper", helper)


@pytest.mark.usefixtures("restored_globals")
@pytest.mark.parametrize("make", [fast_path_of, graphed_of])
@pytest.mark.parametrize("name", cases_of_names("cpu"))
def test_changes_of_a_value_that_the_function_names(device, make, name):
    function, change = cases_of_names(device)[name]
    run_and_change(make, function, device, change)


# training steps


def train(run, model, device, change, calls=8):
    losses = []
    for number in range(calls):
        if number == calls // 2:
            change(model)
        torch.manual_seed(number)
        losses.append(run(torch.randn(2, 3, device=device)))
    return losses


def step_of(model):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def step(x):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def assert_trains_alike(device, change, make_model=Model, calls=8):
    torch.manual_seed(0)
    model = model_on(device, make_model)
    twin = copy.deepcopy(model)
    expected = train(step_of(twin), twin, device, change, calls)
    run = cudagraphs.train_step(
        lambda x: model(x).square().mean(),
        model.parameters(),
        optimizer=torch.optim.SGD(model.parameters(), lr=0.01),
        config=config_for(device),
    )
    torch.testing.assert_close(train(run, model, device, change, calls), expected)
    assert_same_params(model, twin)


@pytest.mark.parametrize("name", CHANGES_OF_A_MODULE)
def test_training_steps_after_changes_of_a_module(device, name):
    assert_trains_alike(device, CHANGES_OF_A_MODULE[name])
    assert cudagraphs.stats().replays > 0


class Counting(Model):
    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        return super().forward(x) * self.calls


@pytest.mark.uncaptured
def test_a_training_step_that_counts_its_calls_runs_uncaptured(device):
    with pytest.warns(DynxWarning, match="runs uncaptured: the function changes attribute calls of a Counting"):
        assert_trains_alike(device, lambda model: None, Counting)


class Remembering(Model):
    """Keeps a tensor of each forward, as mixtures of experts keep their auxiliary loss."""

    def forward(self, x):
        y = super().forward(x)
        self.auxiliary = y.square().mean()
        return y * self.auxiliary.tanh()


def test_a_training_step_that_assigns_a_tensor_is_captured(device):
    assert_trains_alike(device, lambda model: setattr(model, "scale", 3.0), Remembering)
    assert cudagraphs.stats().replays > 0
