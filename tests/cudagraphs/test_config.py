"""Options of `Config` and arguments of the public functions are checked when they are passed."""

from __future__ import annotations

import pytest
import torch

from dynx import cudagraphs
from dynx.cudagraphs._config import OR_ERROR, config_of
from dynx.errors import CaptureError, UsageError


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"outputs": "copy"}, r"outputs='copy' is not a valid option value.*\n  valid choices: 'clone', 'alias', 'static'"),
        ({"max_recordings": "2"}, "max_recordings='2' of dynx_cudagraphs must be of type int"),
        ({"max_recordings": 0}, "max_recordings=0 allows no recordings"),
        ({"or_error": 1}, "or_error=1 of dynx_cudagraphs must be of type bool"),
        ({"buckets": 8}, r"buckets=8 does not map dimensions to sizes\n  pass for example \{0: \(8, 16, 32\)\}"),
        ({"buckets": {0: 8}}, "does not map dimensions to sizes"),
        ({"buckets": {"rows": (8,)}}, "does not map dimensions to sizes"),
        ({"buckets": {-1: (8,)}}, "does not map dimensions to sizes"),
        ({"buckets": {0: (8.5,)}}, "does not map dimensions to sizes"),
        ({"buckets": {0: (0,)}}, "does not map dimensions to sizes"),
        ({"output": "clone"}, r"no option 'output'\n  valid options: inner, inputs, params, outputs"),
    ],
)
def test_invalid_config_options_raise(options, words):
    with pytest.raises(UsageError, match=words):
        config_of(options)


def test_environment_variable_sets_the_or_error_option(monkeypatch):
    monkeypatch.setenv(OR_ERROR, "1")
    assert config_of({}).or_error
    assert cudagraphs.Config().or_error
    monkeypatch.setenv(OR_ERROR, "0")
    assert not config_of({}).or_error


LAYER = torch.nn.Linear(1, 1)
EXAMPLE = torch.ones(1, 1)
MISTAKES = {
    "a dict as a config": (lambda: cudagraphs.backend({}), "config is of type dict, not a Config\n  pass a cudagraphs.Config"),
    "a number as a function": (lambda: cudagraphs.fast_path(3), "3 is not callable"),
    "a config among examples": (lambda: cudagraphs.fast_path(LAYER, EXAMPLE, cudagraphs.Config()), "pass it as config="),
    "sample_args that is no tuple": (
        lambda: cudagraphs.graphed(LAYER, EXAMPLE),
        r"sample_args is of type Tensor, not a tuple\n  pass a tuple .*\(x,\)",
    ),
    "a list of modules": (lambda: cudagraphs.graphed([LAYER], (EXAMPLE,)), "an object of type list is not callable"),
    "a module as parameters": (
        lambda: cudagraphs.train_step(LAYER, LAYER),
        r"params is a module of type Linear\n  pass its parameters\(\)",
    ),
    "parameter groups as parameters": (
        lambda: cudagraphs.train_step(LAYER, [{"params": list(LAYER.parameters())}]),
        "params contains a dict",
    ),
    "an optimizer among examples": (
        lambda: cudagraphs.train_step(LAYER, LAYER.parameters(), torch.optim.SGD(LAYER.parameters())),
        "a SGD was passed as an example\n  pass it by keyword: optimizer=",
    ),
    "clip_grad_norm of zero": (
        lambda: cudagraphs.train_step(LAYER, LAYER.parameters(), clip_grad_norm=0),
        "clip_grad_norm=0 is not a positive norm",
    ),
    "accumulate that is no integer": (
        lambda: cudagraphs.train_step(LAYER, LAYER.parameters(), accumulate=2.5),
        "accumulate=2.5 is not a positive number of calls",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_wrong_arguments_of_cudagraphs_functions_raise(name):
    make, words = MISTAKES[name]
    with pytest.raises(UsageError, match=words):
        make()


def test_or_error_option_raises_without_a_cuda_device(monkeypatch):
    monkeypatch.setattr("dynx.cudagraphs._runtime.select.has_cuda", lambda: False)
    run = torch.compile(lambda x: x + 1, backend=cudagraphs.backend(cudagraphs.Config(or_error=True)))
    with pytest.raises(CaptureError, match="there is no CUDA device"):
        run(torch.ones(3))


def test_mode_argument_of_torch_compile_raises():
    run = torch.compile(lambda x: x * 2, backend="dynx_cudagraphs", mode="max-autotune")
    with pytest.raises(torch._dynamo.exc.BackendCompilerFailed, match="mode='max-autotune' is for inductor"):
        run(torch.ones(3))


def test_dynx_cudagraphs_backend_is_registered_by_name():
    run = torch.compile(lambda x: x * 2, backend="dynx_cudagraphs", options={"runtime": "emulator"})
    assert [run(torch.full((1,), float(step))).item() for step in range(3)] == [0, 2, 4]


@pytest.mark.parametrize("option", [{"inputs": "patch"}, {"inputs": "memcpy_node"}])
@pytest.mark.parametrize(
    "use",
    [
        lambda config: cudagraphs.fast_path(torch.nn.Linear(1, 1), config=config),
        lambda config: cudagraphs.graphed(torch.nn.Linear(1, 1), (torch.ones(1, 1),), config=config),
        lambda config: cudagraphs.train_step(torch.sum, [torch.ones(1, requires_grad=True)], config=config),
        lambda config: cudagraphs.backend(config)(torch.fx.symbolic_trace(torch.nn.Identity()), [torch.ones(1)]),
    ],
    ids=["fast_path", "graphed", "train_step", "backend"],
)
def test_options_that_need_cuda_bindings_raise_without_them(monkeypatch, use, option):
    monkeypatch.setattr("dynx.cudagraphs._runtime.emulator.Emulator.can_set_memcpy_nodes", lambda self: False)
    config = cudagraphs.Config(runtime="emulator", **option)
    words = f"inputs='{config.inputs}' needs cuda-bindings\n  pip install 'dynx\\[cuda\\]'"
    with pytest.raises(UsageError, match=words):
        use(config)
