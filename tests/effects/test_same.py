"""No difference is found where there is none."""

import pytest
import torch
from support.effects_programs import PROGRAMS, same_on_this_torch

import dynx

WITH_INDUCTOR = (
    "module_with_buffers_and_dropout",
    "overlapping_views",
    "training_with_adam",
    "transformer_layer",
    "checkpointed",
)


@pytest.mark.parametrize("name", same_on_this_torch())
def test_programs_that_do_the_same(name):
    torch.manual_seed(0)
    fn, args = PROGRAMS[name]()
    report = dynx.check(fn, *args)
    report.assert_ok()
    assert not report.shared


@pytest.mark.slow
@pytest.mark.parametrize("name", same_on_this_torch())
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_programs_that_do_the_same_with_a_compiler(name, backend):
    torch.manual_seed(0)
    fn, args = PROGRAMS[name]()
    dynx.check(fn, *args, backend=backend).assert_ok()


@pytest.mark.parametrize("name", WITH_INDUCTOR)
def test_a_few_with_inductor(name):
    torch.manual_seed(0)
    fn, args = PROGRAMS[name]()
    dynx.check(fn, *args, backend="inductor").assert_ok()


def test_there_are_fifty():
    assert len(PROGRAMS) >= 50
