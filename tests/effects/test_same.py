"""No difference is found where there is none."""

import pytest
import torch
from support.effects_programs import PROGRAMS, same_on_this_torch

import dynx

INDUCTOR_RETURNS_THE_INPUT = torch.torch_version.TorchVersion(torch.__version__) >= "2.15"

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


TIMES_ONE = ("closure", "globals", "mutable_default", "identity")  # inductor of 2.15 returns `x` itself for `x * 1`


@pytest.mark.slow
@pytest.mark.parametrize("name", same_on_this_torch())
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_programs_that_do_the_same_with_a_compiler(name, backend):
    torch.manual_seed(0)
    fn, args = PROGRAMS[name]()
    report = dynx.check(fn, *args, backend=backend)
    if backend == "inductor" and name in TIMES_ONE and INDUCTOR_RETURNS_THE_INPUT:
        assert {diff.kind for diff in report.diffs} == {"sharing"}
        assert report.stage == "inductor"
    else:
        report.assert_ok()


@pytest.mark.slow
@pytest.mark.parametrize("name", WITH_INDUCTOR)
def test_a_few_with_inductor(name):
    torch.manual_seed(0)
    fn, args = PROGRAMS[name]()
    dynx.check(fn, *args, backend="inductor").assert_ok()


def test_there_are_fifty():
    assert len(PROGRAMS) >= 50
