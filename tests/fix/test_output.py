"""When two outputs of a program are the same: texts exactly, numbers within a tolerance, except those that vary anyway."""

from __future__ import annotations

import pytest

from dynx.fix._output import Tolerance, difference, varying_numbers

TOLERANCE = Tolerance()


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("loss 0.123456", "loss 0.123457"),
        ("loss 1e-8", "loss 2e-8"),
        ("tensor([ 0.5000, -1.2500])", "tensor([0.50001, -1.2500])".replace("[0", "[ 0")),
        ("nan inf -inf", "nan inf -inf"),
        ("epoch  1   loss 2.0", "epoch 1 loss 2.0"),
        ("", ""),
    ],
)
def test_same(first, second):
    assert difference(first, second, TOLERANCE) is None


@pytest.mark.parametrize(
    ("first", "second", "text"),
    [
        ("loss 0.12", "loss 0.13", "line 1: 'loss 0.12', then 'loss 0.13'"),
        ("a\nb 3 steps", "a\nb 4 steps", "line 2: 'b 3 steps', then 'b 4 steps'"),
        ("layer1 ok", "layer2 ok", "line 1: 'layer1 ok', then 'layer2 ok'"),
        ("one\n", "one\ntwo\n", "line 2: '', then 'two'"),
        ("loss 1.0", "loss nan", "line 1: "),
        ("x 1.0", "x 1.0 2.0", "line 1: 'x 1.0', then"),
        ("1 2", "1", "line 1: '1 2', then '1'"),
    ],
)
def test_different(first, second, text):
    found = difference(first, second, TOLERANCE)
    assert found is not None
    assert found.startswith(text)


def test_numbers_that_vary_from_run_to_run_are_not_compared():
    first, again, fixed = ("loss 0.5 in 12.3 s\n", "loss 0.5 in 14.9 s\n", "loss 0.5 in 3.1 s\n")
    varying = varying_numbers(first, again, TOLERANCE)
    assert varying is not None
    assert len(varying) == 1
    assert difference(first, fixed, TOLERANCE, varying) is None
    assert difference(first, fixed.replace("0.5", "0.6"), TOLERANCE, varying) is not None


def test_texts_that_vary_cannot_be_compared():
    assert varying_numbers("id a3f\n", "id 77b\n", TOLERANCE) is None


def test_a_program_that_failed_may_print_more():
    first, second = "epoch 0 loss 0.25\n", "epoch 0 loss 0.2500001\nepoch 1 loss 0.2\n"
    assert difference(first, second, TOLERANCE, may_go_on=True) is None
    assert difference(first, second, TOLERANCE) is not None
    assert difference(second, first, TOLERANCE, may_go_on=True) is not None


def test_a_wider_tolerance():
    assert difference("loss 1.00", "loss 1.01", Tolerance(relative=0.02)) is None


def test_the_line_that_differs_is_shown():
    """Between two numbers lies the rest of a line and the beginning of the next one."""
    first, second = "loss 0.5 ok\nsuspicious 3 batches\n", "loss 0.5 ok\nsuspicious tensor(3) batches\n"
    found = difference(first, second, Tolerance())
    assert found == "line 2: 'suspicious 3 batches', then 'suspicious tensor(3) batches'"
    assert difference("a 1.0\nb 2.0\n", "a 1.0\nb 3.0\n", Tolerance()) == "line 2: 'b 2.0', then 'b 3.0'"
