"""What `dynx fix` writes into a file: the text before and after each rewrite, with its comments and blank lines."""

from __future__ import annotations

from textwrap import dedent
from typing import Any

import pytest
import torch

pytest.importorskip("libcst", reason="dynx fix writes changes with libcst, of the extra 'fix'")

from dynx._rewrites import Files, attribute, ways
from dynx._rewrites.blocks import eager_only
from dynx._rewrites.branch import where
from dynx._rewrites.check import check
from dynx._rewrites.index import by_element
from dynx._rewrites.option import add
from dynx._rewrites.source import parse
from dynx._rewrites.statement import insert, with_torch
from dynx.records import Finding, Location
from dynx.records.fix import Fix, rewrite


def source_of(text: str):
    parsed = parse(dedent(text).lstrip())
    assert parsed is not None
    return parsed


def text_of(text: str) -> str:
    return dedent(text).lstrip()


SETTING = "torch._dynamo.config.capture_scalar_outputs = True"


def test_a_setting_stands_after_the_imports():
    before = '''
        """A program."""

        from __future__ import annotations

        import torch  # the framework
        from torch import nn

        model = nn.Linear(2, 2)
    '''
    after = f'''
        """A program."""

        from __future__ import annotations

        import torch  # the framework
        from torch import nn

        {SETTING}

        model = nn.Linear(2, 2)
    '''
    assert list(insert(source_of(before), SETTING)) == [text_of(after)]


def test_a_setting_stands_before_modules_of_the_program_too():
    text = "import os\nimport torch\nfrom torch import nn\nimport helper\nfrom . import model\n\nx = 1\nimport late\n"
    after, before = insert(source_of(text), SETTING, {"helper", "late"})
    assert after == text.replace("model\n\nx", f"model\n\n{SETTING}\n\nx")
    assert before == text.replace("nn\n", f"nn\n\n{SETTING}\n")


def test_what_stands_before_the_import_of_torch_takes_effect_first():
    text = "import os\nos.environ['A'] = '1'\nimport torch\nfrom torch import nn\nf()\nimport late\n"
    assert list(insert(source_of(text), SETTING)) == [text.replace("nn\n", f"nn\n\n{SETTING}\n")]


def test_settings_of_several_fixes_stand_together():
    first = next(insert(source_of("import torch\n\nx = 1\n"), SETTING))
    second = next(insert(source_of(first), "torch._dynamo.config.recompile_limit = 32"))
    assert second == f"import torch\n\n{SETTING}\ntorch._dynamo.config.recompile_limit = 32\n\nx = 1\n"


@pytest.mark.parametrize("start", ["from torch import nn\n", '"""Doc."""\n', ""])
def test_torch_is_imported_if_the_file_has_no_name_for_it(start):
    before = f"{start}x = 1\n"
    (text,) = (with_torch(before, after) for after in insert(source_of(before), SETTING))
    compile(text, "program.py", "exec")
    assert text.index("import torch\n") < text.index(SETTING) < text.index("x = 1")


def test_torch_has_the_name_that_the_file_has_for_it():
    before = "import torch as th\n\nf = th.compile(g)  # torch.compile\n"
    (text,) = (with_torch(before, after) for after in insert(source_of(before), SETTING))
    assert text == before.replace("th\n", f"th\n\n{SETTING.replace('torch', 'th')}\n", 1)
    (second,) = (with_torch(text, after) for after in insert(source_of(text), "torch._dynamo.config.recompile_limit = 32"))
    assert second == text.replace("True\n", "True\nth._dynamo.config.recompile_limit = 32\n")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("f = torch.compile(g)", "f = torch.compile(g, dynamic=True)"),
        (
            "f = torch.compile(\n    g,\n    backend='eager',\n)",
            "f = torch.compile(\n    g,\n    backend='eager',\n    dynamic=True,\n)",
        ),
        ("@torch.compile\ndef f(x): ...", "@torch.compile(dynamic=True)\ndef f(x): ..."),
        ("@torch.compile(backend='eager')\ndef f(x): ...", "@torch.compile(backend='eager', dynamic=True)\ndef f(x): ..."),
        ("model.compile(backend='eager')", "model.compile(backend='eager', dynamic=True)"),
        ("import torch as th\nf = th.compile(g)", "import torch as th\nf = th.compile(g, dynamic=True)"),
        ("import torch as th\n@th.compile\ndef f(x): ...", "import torch as th\n@th.compile(dynamic=True)\ndef f(x): ..."),
        (
            "from torch import nn, compile as c\n@c(backend='eager')\ndef f(x): ...",
            "from torch import nn, compile as c\n@c(backend='eager', dynamic=True)\ndef f(x): ...",
        ),
        ("from torch import compile\nf = compile(g)", "from torch import compile\nf = compile(g, dynamic=True)"),
        ("model.compile()", "model.compile(dynamic=True)"),
        ("f = torch.compile(g, dynamic=False, mode=m)", "f = torch.compile(g, dynamic=True, mode=m)"),
        ("model.compile(**options)", "model.compile(**options, dynamic=True)"),
        ("f = partial(torch.compile, backend='eager')", "f = partial(torch.compile, backend='eager', dynamic=True)"),
    ],
)
def test_an_argument_is_added_to_torch_compile(before, after):
    assert list(add(source_of(before + "\n"), "dynamic=True", "f")) == [after + "\n"]


@pytest.mark.parametrize("text", ["re.compile('a')", "f = torch.compile(g, dynamic=True)", "builtins.compile(a, b, 'exec')"])
def test_other_calls_are_left(text):
    assert list(add(source_of(text + "\n"), "dynamic=True", "f")) == []


def test_the_call_that_names_the_function_is_changed():
    text = "a = torch.compile(first)\nb = torch.compile(Second())\n"
    (found,) = add(source_of(text), "dynamic=True", "Second.forward")
    assert found == "a = torch.compile(first)\nb = torch.compile(Second(), dynamic=True)\n"


def test_the_calls_inside_the_function_are_changed_if_none_names_it():
    text = "def train():\n    return torch.compile(first)\n\n\nb = torch.compile(second)\n"
    (found,) = add(source_of(text), "dynamic=True", "train.<locals>.step")
    assert found == text.replace("(first)", "(first, dynamic=True)")


def test_each_call_is_changed_and_then_all_if_none_seems_to_compile_the_function():
    text = "a = torch.compile(first)\nb = torch.compile(second)\n"
    assert list(add(source_of(text), "dynamic=True", "Third.forward")) == [
        "a = torch.compile(first, dynamic=True)\nb = torch.compile(second)\n",
        "a = torch.compile(first)\nb = torch.compile(second, dynamic=True)\n",
        "a = torch.compile(first, dynamic=True)\nb = torch.compile(second, dynamic=True)\n",
    ]


def test_dynx_compile_takes_the_place_of_torch_compile():
    text = "import torch\n\nf = torch.compile(g, backend=make())\n"
    assert list(add(source_of(text), "dynx.compile", "g")) == [
        "import torch\n\nimport dynx\n\nf = dynx.compile(g, backend=make())\n"
    ]


BRANCHES = {
    "both sides return": (
        "def f(x):\n    if x.sum() > 0:\n        return x\n    else:\n        return -x\n",
        "def f(x):\n    return torch.where(x.sum() > 0, x, -x)\n",
    ),
    "an early return": (
        "def f(x):\n    # positive\n    if x.sum() > 0:\n        return x\n    return -x\n",
        "def f(x):\n    # positive\n    return torch.where(x.sum() > 0, x, -x)\n",
    ),
    "tuples are returned": (
        "def f(x):\n    if x.sum() > 0:\n        return x, 1\n    return -x, 1\n",
        "def f(x):\n    condition = x.sum() > 0\n    return torch.where(condition, x, -x), 1\n",
    ),
    "an early return before other statements": (
        "def f(x):\n    if not x.any():\n        return x\n    y = x * 2\n    return y\n",
        "def f(x):\n    condition = torch.logical_not(x.any())\n    early = x\n    y = x * 2\n"
        "    return torch.where(condition, early, y)\n",
    ),
    "a condition that is negated twice": (
        "def f(x):\n    if not not x.any():\n        return x\n    y = x * 2\n    return y\n",
        "def f(x):\n    condition = x.any()\n    early = x\n    y = x * 2\n    return torch.where(condition, early, y)\n",
    ),
    "a negated condition": (
        "def f(x):\n    if not x.any():\n        return x\n    return -x\n",
        "def f(x):\n    return torch.where(x.any(), -x, x)\n",
    ),
    "one name is assigned": (
        "def f(x):\n    if x.sum() > 0:\n        x = x * 2\n    return x\n",
        "def f(x):\n    x = torch.where(x.sum() > 0, x * 2, x)\n    return x\n",
    ),
    "an attribute is changed": (
        "def f(self, x):\n    if x.sum() > 0:\n        self.best -= 2 * x\n    return x\n",
        "def f(self, x):\n    self.best = torch.where(x.sum() > 0, self.best - (2 * x), self.best)\n    return x\n",
    ),
    "a conditional expression": (
        "def f(x):\n    return x if x.sum() > 0 else -x\n",
        "def f(x):\n    return torch.where(x.sum() > 0, x, -x)\n",
    ),
    "a call of another function": ("def f(x):\n    return x if x.sum() > 0 else log(x)\n", None),
    "a call of a module": ("def f(self, x):\n    return x if x.sum() > 0 else self.layer(x)\n", None),
    "a change in place": ("def f(x):\n    return x if x.sum() > 0 else x.add_(1)\n", None),
    "functions of torch": (
        "def f(x):\n    return F.relu(x) if x.sum() > 0 else torch.zeros_like(x).sin()\n",
        "def f(x):\n    return torch.where(x.sum() > 0, F.relu(x), torch.zeros_like(x).sin())\n",
    ),
    "a call on one side": ("def f(x):\n    if x.sum() > 0:\n        print(x)\n    return x\n", None),
    "an elif": ("def f(x, n):\n    if n:\n        x = x\n    elif x.sum() > 0:\n        x = -x\n    return x\n", None),
}


@pytest.mark.parametrize("name", BRANCHES)
def test_a_branch_becomes_torch_where(name):
    before, after = BRANCHES[name]
    line = next(number for number, text in enumerate(before.splitlines(), 1) if "x.sum()" in text or "x.any()" in text)
    assert list(where(source_of(before), line)) == ([after] if after is not None else [])


CHECKS = {
    "an if that raises": (
        "def f(x):\n    # positive\n    if (x < 0).any():\n        raise ValueError('negative')\n    return x\n",
        "def f(x):\n    # positive\n    torch._assert_async(torch.logical_not((x < 0).any()), 'negative')\n    return x\n",
    ),
    "a negated condition and values in the message": (
        "def f(x):\n    if not (x < 0).any():\n        raise ValueError(f'{x} is not negative')\n    return x\n",
        "def f(x):\n    torch._assert_async((x < 0).any(), '… is not negative')\n    return x\n",
    ),
    "an assert": (
        "def f(x):\n    assert (x < 0).any().item(), 'negative'\n    return x\n",
        "def f(x):\n    torch._assert_async((x < 0).any(), 'negative')\n    return x\n",
    ),
    "an assert that is negated three times": (
        "def f(x):\n    assert not not not (x < 0).any(), 'negative'\n    return x\n",
        "def f(x):\n    torch._assert_async(torch.logical_not((x < 0).any()), 'negative')\n    return x\n",
    ),
    "an assert without a message": (
        "def f(x):\n    assert (x < 0).any()\n    return x\n",
        "def f(x):\n    torch._assert_async((x < 0).any(), 'not (x < 0).any()')\n    return x\n",
    ),
    "an if that raises without a message": (
        "def f(x):\n    if (x < 0).any():\n        raise ValueError\n    return x\n",
        "def f(x):\n    torch._assert_async(torch.logical_not((x < 0).any()), '(x < 0).any()')\n    return x\n",
    ),
    "an if whose exception is caught": (
        "def f(x):\n    if (x < 0).any():\n        raise errors.Negative('no')\n    return x\n"
        "try:\n    f(x)\nexcept (errors.Negative, OSError):\n    pass\n",
        None,
    ),
    "an assert that is caught": (
        "def f(x):\n    assert (x < 0).any()\n    return x\ntry:\n    f(x)\nexcept AssertionError:\n    pass\n",
        None,
    ),
    "an if that warns": ("def f(x):\n    if (x < 0).any():\n        warnings.warn('negative')\n    return x\n", None),
    "an if with a loop": ("def f(x):\n    if (x < 0).any():\n        for y in x:\n            print(y)\n    return x\n", None),
    "an if that computes": ("def f(x):\n    if (x < 0).any():\n        x = -x\n    return x\n", None),
}


@pytest.mark.parametrize("name", CHECKS)
def test_a_check_needs_no_branch(name):
    before, after = CHECKS[name]
    line = next(number for number, text in enumerate(before.splitlines(), 1) if "x < 0" in text)
    assert list(check(source_of(before), line)) == ([after] if after is not None else [])


def test_names_that_the_file_uses_are_left_alone():
    text = "def f(x, condition):\n    if x.sum() > 0:\n        a = x\n        b = x\n    return a + b\n"
    (found,) = where(source_of(text), 2)
    assert "condition_2 = x.sum() > 0" in found
    assert "a = torch.where(condition_2, x, a)" in found


def test_a_print_runs_in_eager_code_alone():
    text = "def f(x):\n    # for people\n    print(x)  # now\n    return x\n"
    assert list(eager_only(source_of(text), 3)) == [
        "def f(x):\n    # for people\n    if not torch.compiler.is_compiling():\n        print(x)  # now\n    return x\n"
    ]


@pytest.mark.parametrize(
    ("start", "after"),
    [
        ("import os\n\nfrom torch import nn\n", "import os\n\nimport torch\nfrom torch import nn\n"),
        ('"""Doc."""\nfrom __future__ import annotations\n', '"""Doc."""\nfrom __future__ import annotations\nimport torch\n'),
        ("import torch.nn\n", "import torch.nn\n"),
    ],
)
def test_a_rewrite_that_names_torch_imports_it(tmp_path, start, after):
    file = tmp_path / "program.py"
    file.write_text(f"{start}def f(x):\n    return x if x.any() else -x\n")
    line = Location(str(file), start.count("\n") + 2, "f")
    fix = rewrite("where", line)
    (changed,) = ways(Files({}, str(file)), Finding("DX203", "", line, 0.0, "", ""), fix)
    assert changed == {str(file): f"{after}def f(x):\n    return torch.where(x.any(), x, -x)\n"}


def test_a_number_that_an_object_holds_becomes_a_tensor():
    text = "class A:\n    def __init__(self, s):\n        self.step = 0  # calls\n        self.scale: float = s\n"
    assert list(attribute.as_tensor(source_of(text), "step")) == [text.replace("= 0", "= torch.tensor(0)")]
    assert list(attribute.as_tensor(source_of(text), "scale")) == [text.replace("= s\n", "= torch.as_tensor(s)\n")]
    assert list(attribute.as_tensor(source_of(text), "gone")) == []


def test_a_number_that_other_code_reads_stays_a_number():
    """A tensor cannot be written as JSON, and what was read before changes with the next `+=`."""
    text = "class A:\n    def __init__(self):\n        self.step = 0\n\n    def f(self):\n        self.step += 1\n"
    assert len(list(attribute.as_tensor(source_of(text), "step"))) == 1
    assert list(attribute.as_tensor(source_of(f"{text}\nprint(json.dumps(A().step))\n"), "step")) == []


@pytest.mark.parametrize(
    "body",
    [
        "return x if x.any() else None",
        "return (x, x) if x.any() else (x, -x)",
        "if x.any():\n        return x, x\n    return x",
        "if x.any():\n        return None\n    y = x + 1\n    return y",
        "if x.any():\n        return {'x': x}\n    else:\n        return {'x': -x}",
        "y = x\n    if x.any():\n        y = None\n    return y",
        "y = 'zero'\n    if x.any():\n        y = f'{x}'\n    return y",
    ],
)
def test_a_branch_with_values_that_are_no_tensors_is_left(body):
    text = f"def f(x):\n    {body}\n"
    line = 3 if body.startswith("y") else 2
    assert list(where(source_of(text), line)) == []


def test_a_condition_is_no_longer_converted_to_a_number():
    text = "def f(x):\n    return x if float(x.sum()) > x.max().item() else -x\n"
    (found,) = where(source_of(text), 2)
    assert found == "def f(x):\n    return torch.where(x.sum() > x.max(), x, -x)\n"


def test_the_part_of_a_condition_that_is_evaluated_in_python_stays_a_branch():
    """With one element the program below does not divide by a standard deviation that is NaN."""
    begin = "def f(x, y):\n    # scale\n"
    text = f"{begin}    if (x.numel() > 1 and x.std() > 1e-6):  # if it varies\n        x = x / x.std()\n    return x\n"
    (found,) = where(source_of(text), 3)
    assert found == (
        f"{begin}    if x.numel() > 1:  # if it varies\n        x = torch.where(x.std() > 1e-6, x / x.std(), x)\n    return x\n"
    )
    text = "def f(x):\n    if x.numel() and not x.isfinite().all():\n        raise ValueError('not finite')\n    return x\n"
    (found,) = check(source_of(text), 2)
    assert found == (
        "def f(x):\n    if x.numel():\n        torch._assert_async(x.isfinite().all(), 'not finite')\n    return x\n"
    )


@pytest.mark.parametrize(
    "body",
    [
        "return x if n and x.sum() > 0 else -x",
        "if n or x.sum() > 0:\n        x = -x",
        "if not (n and x.sum() > 0):\n        x = -x",
        "if n and (m or x.sum() > 0):\n        x = -x",
        "if n and x.sum() > 0:\n        x = -x\n    else:\n        x = x + 1",
        "if n and x.sum() > 0:\n        return -x\n    return x",
        "assert n and x.sum() > 0",
        "if n or x.sum() > 0:\n        raise ValueError",
    ],
)
def test_a_condition_that_may_be_a_python_value_is_left(body):
    source = source_of(f"def f(x, n, m):\n    {body}\n")
    assert list(where(source, 2)) == []
    assert list(check(source, 2)) == []


def test_a_table_is_indexed_by_a_tensor_of_one_element():
    text = "def f(t, u):\n    a[t] += 1\n    b = a[u] * c[t + 1]\n    return a[0], d[t]\n\n\na[t] = 0\n"
    by_name, by_parameters, by_number = by_element(source_of(text), 4)
    assert by_name == text.replace("    a[t]", "    a[t.view(1)]").replace("d[t]", "d[t.view(1)].squeeze(0)")
    assert by_parameters == by_name.replace("a[u]", "a[u.view(1)].squeeze(0)")
    assert by_number == by_name.replace("t.view", "torch.as_tensor(t).view")
    assert list(by_element(source_of(text), 1)) == list(by_element(source_of(text), 7)) == []


def test_what_is_indexed_by_one_element_has_the_same_shape():
    (text, *_) = by_element(source_of("def f(table, t):\n    table[t] = -table[t]\n    return table[t]\n"), 3)
    scope: dict[str, Any] = {}
    exec(text, scope)
    table, expected = torch.arange(6.0).view(3, 2), torch.arange(6.0).view(3, 2)
    expected[1] *= -1
    assert torch.equal(scope["f"](table, torch.tensor(1)), expected[1])
    assert torch.equal(table, expected)


def test_files_that_are_no_python_are_left(tmp_path):
    file = tmp_path / "program.py"
    file.write_text("def f(:\n")
    finding = Finding("DX202", "", Location(str(file), 1, "f"), 0.0, (), "")
    assert list(ways(Files({}, str(file)), finding, Fix("statement", SETTING))) == []
    assert list(ways(Files({}, str(tmp_path / "gone.py")), finding, Fix("statement", SETTING))) == []
    assert list(ways(Files({}, None), finding, Fix("statement", SETTING))) == []


def test_files_of_libraries_are_left(tmp_path):
    folder = tmp_path / "site-packages"
    folder.mkdir()
    (folder / "library.py").write_text("import torch\n")
    finding = Finding("DX202", "", Location(str(folder / "library.py"), 1, "f"), 0.0, (), "")
    assert list(ways(Files({}, str(folder / "library.py")), finding, Fix("statement", SETTING))) == []


def test_the_text_of_an_earlier_fix_is_changed_further(tmp_path):
    file = str(tmp_path / "program.py")
    finding = Finding("DX202", "", Location(file, 1, "f"), 0.0, (), "")
    (changed,) = ways(Files({file: "import torch\r\nx = 1\r\n"}, file), finding, Fix("statement", SETTING))
    assert changed == {file: f"import torch\r\n\r\n{SETTING}\r\nx = 1\r\n"}
