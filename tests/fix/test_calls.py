"""What `dynx fix` writes where a compiled function is called: marks, a tensor for a number."""

from __future__ import annotations

from dataclasses import replace

import pytest

pytest.importorskip("libcst", reason="dynx fix writes changes with libcst, of the extra 'fix'")

from dynx._rewrites.arguments import as_tensor, mark
from dynx._rewrites.source import parse
from dynx.records import Location
from dynx.records.fix import Fix, Mark, rewrite


def source_of(text: str):
    parsed = parse(text)
    assert parsed is not None
    return parsed


def at(line: int) -> Location:
    return Location("program.py", line, "f")


@pytest.mark.parametrize(
    ("call", "marked"),
    [
        ("y = step(batch, 1)", "torch._dynamo.mark_dynamic(batch, 0)"),
        ("y = step(mode=1, x=batch.images)", "torch._dynamo.mark_dynamic(batch.images, 0)"),
        ("y = step(*batch)", None),
    ],
)
def test_the_argument_of_a_call_is_marked_before_it(call, marked):
    text = f"def step(x, mode):\n    return x\n\nfor batch in batches:\n    # one step\n    {call}\n"
    source = source_of(text)
    step = Location("program.py", 1, "step")
    fix = Fix("mark", "mark_dynamic(x, 0)", step, at(6), (Mark("L['x']", 0),))
    found = list(mark(source, source, fix))
    assert found == ([text.replace(f"    {call}", f"    {marked}\n    {call}")] if marked is not None else [])


def test_items_of_an_argument_and_equal_sizes_are_marked_together():
    text = "class Model:\n    def forward(self, batch, y):\n        return y\n\nout = model(data, target)\n"
    source = source_of(text)
    fix = Fix("mark", "", at(2), at(5), (Mark("batch['ids']", 1), Mark("L['y']", 0)))
    (found,) = mark(source, source, fix)
    assert 'torch._dynamo.mark_dynamic(data["ids"], 1)\ntorch._dynamo.mark_dynamic(target, 0)\nout = model' in found


@pytest.mark.parametrize(
    ("call", "source", "marked"),
    [
        ("model(ids=ids, mask=mask)", "kwargs['ids']", ["ids"]),
        ("model(ids=batch['ids'])", "kwargs['ids'].data", ["batch['ids'].data"]),
        ("model(**batch)", "kwargs['ids']", ['batch["ids"]']),
        ("model(**encode(text))", "kwargs['ids']", ['inputs["ids"]']),
        ("model(**batch, **more)", "kwargs['ids']", []),
        ("model(mode, ids, mask)", "args[1]", ["mask"]),
        ("model(mode, *ids)", "args[1]", []),
        ("model(*ids, mode)", "mode", []),
    ],
)
def test_arguments_of_a_function_that_takes_any_are_marked(call, source, marked):
    """Models of transformers are called through wrappers with `*args, **kwargs`."""
    text = f"class Model:\n    def wrapper(self, mode=0, *args, **kwargs):\n        return 0\n\nout = {call}\n"
    fix = Fix("mark", "mark_dynamic(ids, 1)", at(2), at(5), (Mark(source, 1),))
    found = list(mark(source_of(text), source_of(text), fix))
    assert [line for new in found for line in new.splitlines() if "mark_dynamic" in line] == [
        f"torch._dynamo.mark_dynamic({each}, 1)" for each in marked
    ]
    assert [new for new in found if "inputs" in new] == [
        text.replace("out =", 'inputs = encode(text)\ntorch._dynamo.mark_dynamic(inputs["ids"], 1)\nout =').replace(
            call, "model(**inputs)"
        )
        for each in marked
        if each.startswith("inputs")
    ]


def test_items_that_a_call_may_not_have_are_marked_if_they_are_there():
    text = "def wrapper(**kwargs):\n    return 0\n\nout = wrapper(**batch)\n"
    fix = Fix(
        "mark",
        "maybe_mark_dynamic(ids, 1) and 1 more",
        at(1),
        at(4),
        (Mark("kwargs['ids']", 1), Mark("kwargs['mask']", 1)),
        may_fail=False,
    )
    plain, guarded = mark(source_of(text), source_of(text), fix)
    first, second = (f'torch._dynamo.maybe_mark_dynamic(batch["{name}"], 1)\n' for name in ("ids", "mask"))
    assert plain == text.replace("out", f"{first}{second}out")
    assert guarded == text.replace("out", f'{first}if "mask" in batch:\n    {second}out')


@pytest.mark.parametrize("quote", ["'", '"'])
def test_items_have_the_quotes_of_the_file(quote):
    text = f"name = {quote}a{quote}\n\nout = wrapper(**batch)\n"
    fix = Fix("mark", "mark_dynamic(ids, 1)", at(1), at(3), (Mark("kwargs['ids']", 1), Mark("kwargs['mask']", 1)))
    definition = source_of("def wrapper(**kwargs):\n    return 0\n")
    plain, guarded = mark(source_of(text), definition, fix)
    assert f"(batch[{quote}ids{quote}], 1)" in plain
    assert f"if {quote}mask{quote} in batch:" in guarded


def test_an_argument_that_is_computed_gets_a_name_first():
    text = "def step(x):\n    return x\n\n\ndef main():\n    # one\n    print(step(make(3)))\n"
    source = source_of(text)
    fix = Fix("mark", "", Location("program.py", 1, "step"), at(7), (Mark("x", 0),), may_fail=False)
    (found,) = mark(source, source, fix)
    lines = "    x = make(3)\n    torch._dynamo.maybe_mark_dynamic(x, 0)\n    print(step(x))\n"
    assert found == text.replace("    print(step(make(3)))\n", lines)


@pytest.mark.parametrize("call", ["run(prior, track(4, 2))", "model(prior, prior).norm(2)", "runs['µ'](prior, load(prior, 1))"])
def test_of_several_calls_in_a_line_the_one_at_the_columns_is_changed(call):
    """The caller may use another name for the compiled function than its definition has."""
    text = f"def step(x, y):\n    return x\n\nµ = {call}  # {call}\n"
    column, called = len("µ = ".encode()), call.removesuffix(".norm(2)").encode()
    site = Location("program.py", 4, "main", column, column + len(called))
    fix = Fix("mark", "mark_dynamic(x, 0)", Location("program.py", 1, "step"), site, (Mark("x", 0),))
    source = source_of(text)
    assert list(mark(source, source, fix)) == [text.replace("µ = ", "torch._dynamo.mark_dynamic(prior, 0)\nµ = ")]


def test_a_number_is_passed_as_a_tensor():
    text = "def step(x, lr):\n    return x * lr\n\nstep(x, 0.1 * epoch)\n"
    source = source_of(text)
    fix = rewrite("tensor argument", at(1), at(4), (Mark("lr", 0),))
    assert list(as_tensor(source, source, fix)) == [text.replace("0.1 * epoch", "torch.tensor(0.1 * epoch)")]


def test_a_mark_that_stands_above_the_call_is_not_written_again():
    """A later finding marks more sizes of the same call."""
    text = "def step(a, b):\n    return 0\n\ntorch._dynamo.mark_dynamic(a, 0)\nstep(a, b)\n"
    fix = Fix("mark", "mark_dynamic(a, 0)", at(1), at(5), (Mark("a", 0), Mark("b", 0)))
    (found,) = mark(source_of(text), source_of(text), fix)
    assert found == text.replace("step(a, b)\n", "torch._dynamo.mark_dynamic(b, 0)\nstep(a, b)\n")
    assert list(mark(source_of(found), source_of(found), replace(fix, called_from=at(6)))) == []
