"""Inductor's tests of CPU instructions are a part of the compile time that a user can save."""

from __future__ import annotations

import io

import pytest
import torch
from rich.console import Console

import dynx
from dynx import Run
from dynx.records import Compile, IsaCheck, Location
from dynx.report import terminal

SAVED = "TORCHINDUCTOR_VEC_ISA_OK=1 skips them"


def screen(*records):
    compiled = Compile(0, "0/0", Location("a.py", 1, "f"), "compiled", 4.0)
    console = Console(width=120, file=io.StringIO())
    console.print(terminal(Run((compiled, *records))))
    return console.file.getvalue()


@pytest.fixture
def checked(monkeypatch):
    """Let a test of instructions pass without compiling anything; returns the class of the instructions."""
    from torch._inductor import cpu_vec_isa

    monkeypatch.setattr(cpu_vec_isa.VecISA, "check_build", lambda self, code: True)
    return cpu_vec_isa.VecAVX2


def test_a_test_is_recorded_while_a_watch_is_open_and_not_after_it(checked):
    with dynx.watch() as watch:
        assert checked().check_build("")
    assert checked().check_build("")
    assert [(each.instructions, each.passed) for each in watch.isa_checks] == [("avx2", True)]


def forget_results():
    """Clear the caches in which torch keeps the result of each test for the rest of the process."""
    from torch._inductor import cpu_vec_isa

    cpu_vec_isa.valid_vec_isa_list.cache_clear()
    for cls in (each for each in vars(cpu_vec_isa).values() if isinstance(each, type)):
        for cached in (each for each in vars(cls).values() if hasattr(each, "cache_clear")):
            cached.cache_clear()


@pytest.fixture
def with_amx(checked, monkeypatch):
    """Let the CPU have AMX, whose tests torch makes whatever the setting is; returns the class of the instructions."""
    from torch._inductor import cpu_vec_isa

    monkeypatch.setattr(torch.cpu, "_init_amx", lambda: True)
    forget_results()
    yield cpu_vec_isa.VecAMX
    forget_results()


def test_the_setting_skips_only_the_tests_of_avx(with_amx):
    from torch._inductor import config

    with dynx.watch() as watch:
        assert bool(with_amx())
    forget_results()
    with config.patch({"cpp.vec_isa_ok": True}), dynx.watch() as untested:
        assert bool(with_amx())
    assert any(each.is_skippable for each in watch.isa_checks)
    assert not any(each.is_skippable for each in untested.isa_checks)


def test_the_summary_says_what_saves_the_time_if_all_tests_passed():
    passed, failed = IsaCheck("avx512", 1.0, passed=True), IsaCheck("avx2", 1.0, passed=False)
    assert f"tests of CPU instructions 1.0 s: {SAVED}" in screen(passed)
    assert "tests of CPU instructions 2.0 s" in screen(passed, failed)
    assert SAVED not in screen(passed, failed)  # torch would then use instructions that it cannot compile for
    assert "tests of CPU instructions" not in screen(IsaCheck("avx512", 0.2, passed=True))
    amx = IsaCheck("avx512 amx_tile", 2.0, passed=True, is_skippable=False)
    assert "tests of CPU instructions 3.0 s: TORCHINDUCTOR_VEC_ISA_OK=1 skips 1.0 s of it" in screen(passed, amx)
    assert "TORCHINDUCTOR_VEC_ISA_OK" not in screen(amx)  # it is set


def test_torch_chooses_the_same_instructions_without_tests_that_all_passed(checked):
    from torch._inductor import config, cpu_vec_isa

    def chosen():
        forget_results()
        return str(cpu_vec_isa.pick_vec_isa())

    try:
        with dynx.watch() as watch:
            tested = chosen()
        with config.patch({"cpp.vec_isa_ok": True}), dynx.watch() as untested:
            assert chosen() == tested
    finally:
        forget_results()
    assert any(each.is_skippable for each in watch.isa_checks)
    assert not any(each.is_skippable for each in untested.isa_checks)
