"""Settings of every test: fresh torch.compile caches, one Hypothesis profile, GPU tests only where there is a GPU."""

from __future__ import annotations

import gc
import logging
import os

import pytest
import torch
import torch._inductor.compile_fx
from hypothesis import HealthCheck, settings
from programs_runner import restored_torch
from support import untimed_guards
from support.symbol_names import names_of_torch
from tiers import in_shard, with_cases

logging.getLogger("torch").setLevel(logging.ERROR)

# A loaded machine is slow to generate examples, which says nothing of the code under test. CI always tests the same examples.
settings.register_profile(
    "dynx",
    max_examples=int(os.environ.get("DYNX_EXAMPLES", "100")),  # `make laws` tests a thousand
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize="CI" in os.environ,
    print_blob=True,
)
settings.load_profile("dynx")

# torch with Dynamo and Inductor is 350,000 objects that live until the process ends. Frozen, they are visited neither by the
# garbage collector nor by dynx when it looks through `gc.get_objects()` for modules: that was a third of the suite's CPU time.
gc.collect()
gc.freeze()

untimed_guards.install()

_deselected = pytest.StashKey[int]()


@pytest.fixture(autouse=True)
def fresh_torch():
    """Reset torch.compile's caches and restore torch's settings after the test."""
    with restored_torch():
        yield


@pytest.fixture
def torch_names():
    """Let torch name symbols, under `make wide-ids` too."""
    with names_of_torch():
        yield


@pytest.fixture
def count_compiles():
    """A backend that runs graphs eagerly and counts them."""

    def backend(graph_module, example_inputs):
        backend.count += 1
        return graph_module.forward

    backend.count = 0
    return backend


def pytest_addoption(parser):
    parser.addoption("--cases", type=int, metavar="N", help="run up to N cases of each test, spread over its parameters")
    parser.addoption("--shard", default="1/1", metavar="I/N", help="run a part of the tests: 2/4 is the second of four")


@pytest.hookimpl(trylast=True)  # of the tests that `-m` and `-k` select
def pytest_collection_modifyitems(config, items):
    """Deselect by the options above; deselect tests that need more CUDA devices than there are, instead of skipping them."""
    devices = torch.cuda.device_count()
    needing = {item for item in items for mark in item.iter_markers("gpu") if mark.kwargs.get("devices", 1) > devices}
    config.stash[_deselected] = len(needing)
    kept = set(in_shard(with_cases(items, config.getoption("--cases")), config.getoption("--shard"))) - needing
    if len(kept) < len(items):
        config.hook.pytest_deselected(items=[item for item in items if item not in kept])
        items[:] = [item for item in items if item in kept]


def pytest_sessionfinish(session):
    """Send the number of deselected tests from a worker of pytest-xdist to the process that prints the summary."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["deselected"] = session.config.stash.get(_deselected, 0)


@pytest.hookimpl(optionalhook=True)  # a hook of pytest-xdist
def pytest_testnodedown(node):
    """Keep the number that a worker sent; every worker collects all tests, so that the numbers are equal."""
    node.config.stash[_deselected] = getattr(node, "workeroutput", {}).get("deselected", 0)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(terminalreporter, config):
    """Print the number of deselected tests in one line below the summary."""
    yield
    if number := config.stash.get(_deselected, 0):
        terminalreporter.write_line(f"{number} tests need CUDA devices that this machine lacks: deselected")
