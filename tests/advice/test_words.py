"""Guard sources such as `L['self']._modules['0']`, shown as the expressions that a user would write."""

from __future__ import annotations

import pytest

from dynx.advice import spoken
from dynx.advice.findings.described import subject_of
from dynx.records import Reason


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("x", "x"),
        ("self._modules['blocks']._modules['0'].training", "self.blocks[0].training"),
        ("self._parameters['weight']", "self.weight"),
        ("kwargs['input_ids']", "input_ids"),
        ("G['STEP']", "STEP"),
        ("G['__import_pkg_dot_settings'].STEP", "pkg.settings.STEP"),
        ("batch['mask']", "batch['mask']"),
    ],
)
def test_guard_source_is_shown_as_the_user_would_write_it(source, text):
    assert spoken(source) == text


@pytest.mark.parametrize(
    ("kind", "source", "text"),
    [
        ("size", "x.size()[1]", "x.size(1)"),
        ("requires_grad", "x", "x.requires_grad"),
        ("dtype", "self._buffers['b']", "self.b.dtype"),
        ("length", "history", "len(history)"),
        ("global_state", "deterministic_algorithms", "deterministic_algorithms"),
        ("global_state", "default_dtype num_threads", "global torch state"),
        ("global_state", "grad_mode", "grad mode"),
    ],
)
def test_recompile_advice_names_the_guarded_value(kind, source, text):
    assert subject_of(Reason(kind, source, None, None, None)) == text
